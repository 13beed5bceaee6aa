"""Plans: every decision about a layer, made once; immutable, for any number of threads."""
from __future__ import annotations

import ctypes as c
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import abi
from .arrays import type_of
from .checkpoint import Checkpoint
from .enums import ActivationQuantization, DeviceKind, ExplainForm, Residency, Role, Stage, Type
from .errors import MoeError, NotFoundError
from .tensors import Format
from .handle import Handle, using
from .layer_desc import LayerDesc, Slice
from .loading import library
from .runtime import Runtime, kept_by


@dataclass(frozen=True)
class PlanDevice:
    kind: DeviceKind
    index: int
    reason: str


class WorkspaceNeed(NamedTuple):
    device_bytes: int
    host_bytes: int
    alignment: int


class Candidate(NamedTuple):
    stage: Stage
    kernel: str
    chosen: bool
    applicable: bool
    reason_code: str
    reason: str


class Shape(NamedTuple):
    """The sizes that the arrays of a plan's calls have."""

    hidden: int
    latent: int  # hidden where the layer has no latent
    top_k: int
    n_experts: int
    n_all_experts: int  # with identity experts
    n_local_experts: int
    n_features: int  # of the slice before the activation: gate and up, or up alone
    out_width: int  # of a reduced output


class PlanOptions:
    """What a plan is requested for: moe_plan_desc with what it points to. Fields that are left out are the library's choice.

    x_type and max_tokens are required, and either layer and formats or a checkpoint with its decoder layer.
    Types are given as "bf16", a Type, or a dtype of numpy or torch; formats by role, as Format or by name.
    """

    def __init__(
        self,
        layer: LayerDesc | None = None,
        formats: Mapping[Any, Format | str] | None = None,
        *,
        x_type: Any,
        max_tokens: int,
        checkpoint: Checkpoint | None = None,
        checkpoint_layer: int = 0,
        device: DeviceKind | str | int = DeviceKind.AUTO,
        device_index: int = 0,
        router_input_type: Any = Type.NONE,
        out_type: Any = Type.NONE,
        intermediate_type: Any = Type.NONE,
        stages: int = 0,
        partial: bool = False,
        slice: Slice | None = None,
        max_workspace_bytes: int = 0,
        residency: Residency | str | int = Residency.AUTO,
        activation_quantization: ActivationQuantization | str | int = ActivationQuantization.NONE,
        batch_invariant: bool = False,
        unfused: bool = False,
        kernel_filter: str | None = None,
        tuning_path: str | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.desc = abi.PlanDesc(device=DeviceKind.of(device), device_index=device_index)
        self._set_types(x_type, router_input_type, out_type, intermediate_type)
        self.desc.stages, self.desc.max_tokens = stages, max_tokens
        self.desc.checkpoint_layer, self.desc.max_workspace_bytes = checkpoint_layer, max_workspace_bytes
        self.desc.residency = Residency.of(residency)
        self.desc.activation_quantization = ActivationQuantization.of(activation_quantization)
        self.desc.partial, self.desc.batch_invariant, self.desc.unfused = partial, batch_invariant, unfused
        self.desc.kernel_filter = kernel_filter.encode() if kernel_filter is not None else None
        self.desc.tuning_path = tuning_path.encode() if tuning_path is not None else None
        self.desc.layer = c.addressof(layer) if layer is not None else None
        self.desc.slice = c.addressof(slice.struct) if slice is not None else None
        self._keep = (layer, slice, self._set_formats(formats))

    def _set_types(self, x: Any, router_input: Any, out: Any, intermediate: Any) -> None:
        self.desc.x_type, self.desc.router_input_type = type_of(x), type_of(router_input)
        self.desc.out_type, self.desc.intermediate_type = type_of(out), type_of(intermediate)

    def _set_formats(self, formats: Mapping[Any, Format | str] | None) -> Any:
        if not formats:
            return None
        by_role = {int(Role.of(role)): Format.of(one) for role, one in formats.items()}
        pointers = (c.c_void_p * max(abi.ROLE_COUNT, max(by_role) + 1))()
        for role, one in by_role.items():
            pointers[role] = c.addressof(one)
        self.desc.formats, self.desc.n_formats = c.addressof(pointers), len(pointers)
        return pointers, by_role

    def call(self, function: str, runtime: Runtime | None, *out: int) -> None:
        with using(runtime, self.checkpoint) as [means, checkpoint]:
            self.desc.checkpoint = checkpoint
            library().call(function, means, c.addressof(self.desc), *out)


class Plan(Handle):
    """Takes the arguments of PlanOptions, or one such object, and a runtime."""

    destroy = "moe_plan_destroy"

    def __init__(self, *arguments: Any, runtime: Runtime | None = None, **options: Any) -> None:
        asked = _options(arguments, options)
        out = c.c_void_p()
        asked.call("moe_plan_create", runtime, c.addressof(out))
        super().__init__(out.value or 0, kept_by(runtime))

    @staticmethod
    def refusal(*arguments: Any, runtime: Runtime | None = None, **options: Any) -> MoeError | None:
        """The error that Plan() would raise for these arguments, None if it would succeed. Makes nothing."""
        try:
            _options(arguments, options).call("moe_supports", runtime)
        except MoeError as error:
            return error
        return None

    @staticmethod
    def supports(*arguments: Any, runtime: Runtime | None = None, **options: Any) -> bool:
        return Plan.refusal(*arguments, runtime=runtime, **options) is None

    @staticmethod
    def key(*arguments: Any, runtime: Runtime | None = None, **options: Any) -> bytes:
        """16 bytes; equal keys mean equal plans, so that layers may share one."""
        key = (c.c_uint8 * 16)()
        _options(arguments, options).call("moe_plan_key", runtime, c.addressof(key))
        return bytes(key)

    @property
    def layout_id(self) -> bytes:
        """16 bytes; weights with the same id go with this plan."""
        found = (c.c_uint8 * 16)()
        with self.use() as plan:
            self._library.call("moe_plan_layout_id", plan, c.addressof(found))
        return bytes(found)

    @functools.cached_property
    def device(self) -> PlanDevice:
        kind, index, reason = c.c_int32(), c.c_int32(), c.c_char_p()
        with self.use() as plan:
            out = (c.addressof(kind), c.addressof(index), c.addressof(reason))
            self._library.call("moe_plan_device", plan, *out)
        return PlanDevice(DeviceKind(kind.value), index.value, (reason.value or b"").decode())

    def workspace_need(self, n_tokens: int) -> WorkspaceNeed:
        need = abi.WorkspaceNeed()
        with self.use() as plan:
            self._library.call("moe_plan_workspace_size", plan, n_tokens, c.addressof(need))
        return WorkspaceNeed(need.device_bytes, need.host_bytes, need.alignment)

    def kernel(self, stage: Stage | str | int, n_tokens: int) -> str:
        name = c.c_char_p()
        with self.use() as plan:
            self._library.call("moe_plan_kernel", plan, Stage.of(stage), n_tokens, c.addressof(name))
        return (name.value or b"").decode()

    @property
    def candidates(self) -> list[Candidate]:
        return list(self._candidates())

    def _candidates(self) -> Iterator[Candidate]:
        found, index = abi.Candidate(), 0
        while True:
            try:
                with self.use() as plan:
                    self._library.call("moe_candidates", plan, index, c.addressof(found))
            except NotFoundError:
                return
            flags = (bool(found.chosen), bool(found.applicable))
            kernel, code, reason = (one.decode() for one in (found.kernel, found.reason_code, found.reason) if one)
            yield Candidate(Stage(found.stage), kernel, *flags, code, reason)
            index += 1

    def explain(self, form: ExplainForm | str | int = ExplainForm.TEXT) -> str:
        """As text, or as JSON (docs/explain.schema.json)."""
        size = c.c_uint64()
        with self.use() as plan:
            ask = functools.partial(self._library.call, "moe_plan_explain", plan, ExplainForm.of(form))
            ask(None, 0, c.addressof(size))
            text = c.create_string_buffer(size.value)
            ask(c.addressof(text), size.value, c.addressof(size))
        return text.value.decode()

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What explain says in JSON, read."""
        return dict(json.loads(self.explain(ExplainForm.JSON)))

    @functools.cached_property
    def shape(self) -> Shape:
        layer, cut = self.facts["layer"], self.facts["slice"]
        latent = layer["latent"] or layer["hidden"]
        n_all = layer["n_experts"] + layer["n_identity_experts"]
        is_gated = any(matrix["role"] == "gate" for matrix in self.facts["weights"]["matrices"])
        n_features = cut["intermediate"][1] * (2 if is_gated else 1)
        width = latent if cut["partial"] else layer["hidden"]
        counts = (layer["top_k"], layer["n_experts"], n_all, cut["n_local_experts"])
        return Shape(layer["hidden"], latent, *counts, n_features, width)

    def type(self, what: str) -> Type:
        """Of "x", "router_input", "out" or "intermediate"."""
        return Type.of(self.facts["types"][what])


def _options(arguments: tuple[Any, ...], options: dict[str, Any]) -> PlanOptions:
    if len(arguments) == 1 and isinstance(arguments[0], PlanOptions) and not options:
        return arguments[0]
    return PlanOptions(*arguments, **options)
