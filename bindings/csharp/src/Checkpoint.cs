using System;
using System.Collections.Generic;

namespace Moe
{
    /// <summary>moe_checkpoint_options.</summary>
    public sealed class CheckpointOptions
    {
        public Runtime Runtime { get; set; }
        public CheckpointIO IO { get; set; }

        /// <summary>null: from the config.</summary>
        public string Family { get; set; }

        /// <summary>Overrides what the family says of fused expert tensors.</summary>
        public Orientation? Orientation { get; set; }

        public GateUpOrder GateUpOrder { get; set; }

        /// <summary>null: none. Else fields of moe_layer_desc in place of what the files say: "top_k=4, gate_limit=none".</summary>
        public string Overrides { get; set; }
    }

    /// <summary>moe_checkpoint_info.</summary>
    public sealed unsafe class CheckpointInfo
    {
        internal CheckpointInfo(moe_checkpoint_info from)
        {
            NLayers = from.n_layers;
            NFiles = from.n_files;
            IsGguf = from.is_gguf != 0;
            NTensors = from.n_tensors;
            FileBytes = from.file_bytes;
            Family = Utf8.Read((IntPtr)from.family);
            ModelType = Utf8.Read((IntPtr)from.model_type);
        }

        /// <summary>MoE layers.</summary>
        public int NLayers { get; }

        public int NFiles { get; }
        public bool IsGguf { get; }
        public ulong NTensors { get; }
        public ulong FileBytes { get; }
        public string Family { get; }

        /// <summary>As the file has it.</summary>
        public string ModelType { get; }
    }

    /// <summary>A model on disk: a folder of safetensors, one such file, or GGUF. Any number of threads may use one.</summary>
    public sealed unsafe class Checkpoint : IDisposable
    {
        private readonly CheckpointHandle handle;

        /// <summary>Reads headers only.</summary>
        public Checkpoint(string path, CheckpointOptions options = null)
        {
            options = options ?? new CheckpointOptions();
            using (var memory = new CallMemory())
            {
                var desc = default(moe_checkpoint_options);
                desc.struct_size = (uint)sizeof(moe_checkpoint_options);
                desc.io = options.IO;
                desc.family = memory.OptionalText(options.Family);
                desc.has_orientation = options.Orientation.HasValue ? 1 : 0;
                desc.orientation = options.Orientation ?? Orientation.OutIn;
                desc.gate_up_order = options.GateUpOrder;
                desc.overrides = memory.OptionalText(options.Overrides);
                var runtime = Runtime.HandleOf(options.Runtime);
                Library.Native.moe_checkpoint_open(runtime, memory.Text(path), &desc, out handle);
            }
            Hooks = options.Runtime?.Hooks;
            handle.Keep(Hooks.Keep(Hooks));
        }

        internal Hooks Hooks { get; }

        internal CheckpointHandle Open => !IsClosed ? handle : throw new ObjectDisposedException(nameof(Checkpoint));

        /// <summary>True from Dispose on.</summary>
        public bool IsClosed => handle.IsDisposed;

        public void Dispose() => handle.Dispose();

        public CheckpointInfo Info()
        {
            var info = default(moe_checkpoint_info);
            info.struct_size = (uint)sizeof(moe_checkpoint_info);
            Library.Native.moe_checkpoint_get_info(Open, &info);
            return new CheckpointInfo(info);
        }

        /// <summary>The decoder layers that are MoE layers, ascending; none of a checkpoint without experts.</summary>
        public IReadOnlyList<int> Layers()
        {
            var layers = new int[Info().NLayers];
            for (var i = 0; i < layers.Length; i++)
                layers[i] = LayerAt(i);
            return layers;
        }

        /// <summary>The decoder layer of the index-th MoE layer. Where there is none it is a <see cref="MoeException"/> that says
        /// what the checkpoint has.</summary>
        public int LayerAt(int index)
        {
            Library.Native.moe_checkpoint_layer_at(Open, index, out var layer);
            return layer;
        }

        /// <summary>Describes a decoder layer. Change any field before planning: files leave things out.</summary>
        public LayerDesc Layer(int layer)
        {
            var desc = default(moe_layer_desc);
            desc.struct_size = (uint)sizeof(moe_layer_desc);
            Library.Native.moe_checkpoint_layer(Open, layer, &desc);
            return LayerDesc.FromNative(desc);
        }

        /// <summary>The formats of the roles that a layer has.</summary>
        public Dictionary<Role, Format> Formats(int layer)
        {
            var found = new Dictionary<Role, Format>();
            using (var memory = new CallMemory())
            {
                var pointers = (moe_format**)memory.Allocate(Header.RoleCount * sizeof(IntPtr));
                for (var role = 0; role < Header.RoleCount; role++)
                    pointers[role] = (moe_format*)memory.Put(new Format());
                Library.Native.moe_checkpoint_formats(Open, layer, pointers, Header.RoleCount);
                for (var role = 0; role < Header.RoleCount; role++)
                    if (pointers[role]->type != ElementType.None)
                        found[(Role)role] = Format.FromNative(*pointers[role]);
            }
            return found;
        }

        /// <summary>The tensors of a layer, which point into the mapping, and keep it: valid until this is disposed, and for
        /// borrowed weights as long as those need them.</summary>
        public IReadOnlyList<Tensor> Tensors(int layer)
        {
            var found = new List<Tensor>();
            while (true)
            {
                var tensor = default(moe_tensor);
                var format = Format.Empty();
                tensor.struct_size = (uint)sizeof(moe_tensor);
                try
                {
                    Library.Native.moe_checkpoint_tensor(Open, layer, (uint)found.Count, &tensor, &format);
                }
                catch (MoeException end) when (end.Status == Status.NotFound && found.Count > 0)
                {
                    return found;
                }
                found.Add(Tensor.FromNative(&tensor, handle));
            }
        }
    }
}
