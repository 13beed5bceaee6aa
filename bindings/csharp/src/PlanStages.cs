using System;

namespace Moe
{
    /// <summary>moe_route_args: X, RouterInput or Logits to OutIds and OutWeights. With Ids given only weights are new.</summary>
    public sealed class RouteArgs
    {
        public Values X { get; set; }
        public Values RouterInput { get; set; }
        public Values Logits { get; set; }
        public Values Ids { get; set; }
        public Values TokenIds { get; set; }

        /// <summary>[T] sbyte: which tokens the second selection bias chooses for.</summary>
        public Values UsesSecondBias { get; set; }
        public Values NTokensDevice { get; set; }

        /// <summary>[T, top_k] int.</summary>
        public Values OutIds { get; set; }

        /// <summary>[T, top_k] float.</summary>
        public Values OutWeights { get; set; }

        /// <summary>[T, all experts] float.</summary>
        public Values OutLogits { get; set; }

        public IntPtr Stream { get; set; }

        /// <summary>CPU threads of this call at most; 0: those of the runtime.</summary>
        public int NThreads { get; set; }

        internal unsafe moe_route_args ToNative(Arguments a)
        {
            Arguments.Require("OutWeights", OutWeights);
            if (Ids == null)
                Arguments.Require("OutIds", OutIds);
            var shape = a.Shape;
            var n = X?.RowsOf(shape.Hidden) ?? RouterInput?.RowsOf(shape.Hidden) ?? Logits?.RowsOf(shape.NAllExperts) ?? 0;
            var args = default(moe_route_args);
            args.struct_size = (uint)sizeof(moe_route_args);
            args.n_tokens = n;
            args.routing = Arguments.RoutingOf(Logits, Ids, null);
            args.x = a.Rows("X", X, n, shape.Hidden, out args.x_row_stride, shape.XType);
            args.router_input = a.Rows("RouterInput", RouterInput, n, shape.Hidden, out args.router_input_row_stride,
                shape.RouterInputType);
            args.logits = a.Rows("Logits", Logits, n, shape.NAllExperts, out args.logits_row_stride, ElementType.F32);
            args.ids = a.Ids("Ids", Ids, n, out args.ids_row_stride, out args.ids_type);
            args.token_ids = a.DenseIds("TokenIds", TokenIds, n, out args.token_ids_type);
            args.uses_second_bias = a.Dense("UsesSecondBias", UsesSecondBias, n, ElementType.I8);
            args.n_tokens_device = a.TrueTokens(NTokensDevice);
            args.out_ids = a.Output("OutIds", OutIds, n, shape.TopK, out args.out_ids_row_stride, ElementType.I32);
            args.out_weights = a.Output("OutWeights", OutWeights, n, shape.TopK, out args.out_weights_row_stride,
                ElementType.F32);
            args.out_logits = a.Output("OutLogits", OutLogits, n, shape.NAllExperts, out args.out_logits_row_stride,
                ElementType.F32);
            args.stream = Stream;
            args.n_threads = NThreads;
            return args;
        }
    }

    /// <summary>moe_dispatch_args. The row capacity is the length of OutRowIds.</summary>
    public sealed class DispatchArgs
    {
        /// <summary>[T, top_k] global ids.</summary>
        public Values Ids { get; set; }

        /// <summary>0 or 1: packed.</summary>
        public int BlockRows { get; set; }

        public Values ExpertMap { get; set; }
        public Values NTokensDevice { get; set; }

        /// <summary>[local experts + 1] long.</summary>
        public Values OutOffsets { get; set; }

        /// <summary>[local experts] long, or null.</summary>
        public Values OutCounts { get; set; }

        /// <summary>[capacity] int; what lies beyond the last offset is undefined.</summary>
        public Values OutRowIds { get; set; }

        public IntPtr Stream { get; set; }

        internal unsafe moe_dispatch_args ToNative(Arguments a)
        {
            Arguments.Require("Ids", Ids);
            Arguments.Require("OutOffsets", OutOffsets);
            var shape = a.Shape;
            var args = default(moe_dispatch_args);
            args.struct_size = (uint)sizeof(moe_dispatch_args);
            args.n_tokens = Ids.RowsOf(shape.TopK);
            args.block_rows = BlockRows;
            args.ids = a.Ids("Ids", Ids, args.n_tokens, out args.ids_row_stride, out args.ids_type);
            args.expert_map = a.ExpertMap(ExpertMap, out args.n_expert_map);
            args.n_tokens_device = a.TrueTokens(NTokensDevice);
            args.out_offsets = a.DenseOutput("OutOffsets", OutOffsets, shape.NLocalExperts + 1, ElementType.I64);
            args.out_counts = a.DenseOutput("OutCounts", OutCounts, shape.NLocalExperts, ElementType.I64);
            args.row_capacity = OutRowIds?.Elements ?? 0;
            args.out_row_ids = a.DenseOutput("OutRowIds", OutRowIds, args.row_capacity, ElementType.I32);
            args.stream = Stream;
            return args;
        }
    }

    /// <summary>moe_gather_args. Offsets, Counts and RowIds are those of Dispatch.</summary>
    public sealed class GatherArgs
    {
        /// <summary>[T, hidden], or [T, latent] with XIsLatent, of the plan's type of x.</summary>
        public Values X { get; set; }

        public bool XIsLatent { get; set; }

        /// <summary>[local experts + 1] long.</summary>
        public Values Offsets { get; set; }

        /// <summary>[local experts] long, or null.</summary>
        public Values Counts { get; set; }

        /// <summary>[rows] int.</summary>
        public Values RowIds { get; set; }

        /// <summary>[rows, hidden or latent]; rows without a token are not written.</summary>
        public Values Out { get; set; }

        /// <summary>[T, top_k] float, with OutRowWeights.</summary>
        public Values Weights { get; set; }

        /// <summary>[rows] int, or null: -1 where there is no token.</summary>
        public Values OutRowTokens { get; set; }

        /// <summary>[rows] float, or null.</summary>
        public Values OutRowWeights { get; set; }

        public IntPtr Stream { get; set; }

        /// <summary>CPU threads of this call at most; 0: those of the runtime.</summary>
        public int NThreads { get; set; }

        internal unsafe moe_gather_args ToNative(Arguments a)
        {
            Arguments.Require("X", X);
            Arguments.Require("RowIds", RowIds);
            Arguments.Require("Out", Out);
            var shape = a.Shape;
            var width = XIsLatent ? shape.Latent : shape.Hidden;
            var args = default(moe_gather_args);
            args.struct_size = (uint)sizeof(moe_gather_args);
            args.x_is_latent = XIsLatent ? 1 : 0;
            args.n_tokens = X.RowsOf(width);
            args.n_rows = RowIds.Elements;
            args.x = a.Rows("X", X, args.n_tokens, width, out args.x_row_stride, shape.XType);
            args.offsets = a.Dense("Offsets", Offsets, shape.NLocalExperts + 1, ElementType.I64);
            args.counts = a.Dense("Counts", Counts, shape.NLocalExperts, ElementType.I64);
            args.row_ids = a.Dense("RowIds", RowIds, args.n_rows, ElementType.I32);
            args.@out = a.Output("Out", Out, args.n_rows, width, out args.out_row_stride, shape.XType);
            args.weights = a.Rows("Weights", Weights, args.n_tokens, shape.TopK, out args.weights_row_stride,
                ElementType.F32);
            args.out_row_tokens = a.DenseOutput("OutRowTokens", OutRowTokens, args.n_rows, ElementType.I32);
            args.out_row_weights = a.DenseOutput("OutRowWeights", OutRowWeights, args.n_rows, ElementType.F32);
            args.stream = Stream;
            args.n_threads = NThreads;
            return args;
        }
    }

    /// <summary>moe_experts_args; the layouts are those of the table above moe_experts in moe.h.</summary>
    public sealed class ExpertsArgs
    {
        public InLayout InLayout { get; set; }
        public OutLayout OutLayout { get; set; }

        /// <summary>Tokens [T, hidden or latent]; Sorted [rows, .]; Batched [local experts * capacity, .].</summary>
        public Values X { get; set; }

        public Values Out { get; set; }

        /// <summary>Of sorted rows with an output by token; else X says it.</summary>
        public long NTokens { get; set; }

        public bool XIsLatent { get; set; }
        public bool StopBeforeActivation { get; set; }
        public Values Ids { get; set; }

        /// <summary>[T, top_k] float.</summary>
        public Values Weights { get; set; }

        /// <summary>[local experts + 1] long.</summary>
        public Values Offsets { get; set; }

        /// <summary>[local experts] long.</summary>
        public Values Counts { get; set; }

        /// <summary>[rows] int.</summary>
        public Values RowIds { get; set; }

        /// <summary>[rows] float.</summary>
        public Values RowWeights { get; set; }

        public Values ExpertMap { get; set; }
        public Values NTokensDevice { get; set; }
        public bool Accumulate { get; set; }
        public IntPtr Stream { get; set; }

        /// <summary>CPU threads of this call at most; 0: those of the runtime.</summary>
        public int NThreads { get; set; }

        internal unsafe moe_experts_args ToNative(Arguments a)
        {
            Arguments.Require("X", X);
            Arguments.Require("Out", Out);
            var shape = a.Shape;
            var args = default(moe_experts_args);
            args.struct_size = (uint)sizeof(moe_experts_args);
            args.in_layout = InLayout;
            args.out_layout = OutLayout;
            args.stop_before_activation = StopBeforeActivation ? 1 : 0;
            args.x_is_latent = XIsLatent ? 1 : 0;
            var width = XIsLatent ? shape.Latent : shape.Hidden;
            var rows = SetCounts(a, ref args, X.RowsOf(width));
            var n = args.n_tokens;
            args.x = a.Rows("X", X, X.RowsOf(width), width, out args.x_row_stride, shape.XType);
            args.ids = a.Ids("Ids", Ids, n, out args.ids_row_stride, out args.ids_type);
            args.weights = a.Rows("Weights", Weights, n, shape.TopK, out args.weights_row_stride, ElementType.F32);
            args.expert_map = a.ExpertMap(ExpertMap, out args.n_expert_map);
            args.n_tokens_device = a.TrueTokens(NTokensDevice);
            args.offsets = a.Dense("Offsets", Offsets, shape.NLocalExperts + 1, ElementType.I64);
            args.counts = a.Dense("Counts", Counts, shape.NLocalExperts, ElementType.I64);
            args.row_ids = a.Dense("RowIds", RowIds, rows, ElementType.I32);
            args.row_weights = a.Dense("RowWeights", RowWeights, rows, ElementType.F32);
            SetOutput(a, ref args, n, rows);
            args.accumulate = Accumulate ? 1 : 0;
            args.stream = Stream;
            args.n_threads = NThreads;
            return args;
        }

        /// <summary>The tokens of the call; gives its rows.</summary>
        private long SetCounts(Arguments a, ref moe_experts_args args, long rowsOfX)
        {
            var rows = rowsOfX;
            args.n_tokens = NTokens;
            if (InLayout == InLayout.Tokens)
            {
                args.n_tokens = rowsOfX;
                rows = RowIds?.Elements ?? 0;
            }
            if (InLayout == InLayout.Batched)
            {
                if (a.Shape.NLocalExperts == 0 || rows % a.Shape.NLocalExperts != 0)
                    throw new ArgumentException("X must have as many rows for every local expert", "X");
                args.batch_capacity = rows / a.Shape.NLocalExperts;
            }
            args.n_rows = InLayout != InLayout.Batched || RowIds != null || RowWeights != null ? rows : 0;
            return rows;
        }

        private void SetOutput(Arguments a, ref moe_experts_args args, long n, long rows)
        {
            var width = StopBeforeActivation ? a.Shape.NFeatures : a.Shape.Latent;
            if (OutLayout == OutLayout.PerSlot)
                width *= a.Shape.TopK;
            args.@out = a.Output("Out", Out, OutLayout == OutLayout.Rows ? rows : n, width, out args.out_row_stride,
                a.Shape.OutType);
        }
    }

    /// <summary>moe_combine_args. Rows are [T, top_k * latent], or with RowIds [rows, latent] sorted.</summary>
    public sealed class CombineArgs
    {
        public Values Rows { get; set; }

        /// <summary>[rows] int.</summary>
        public Values RowIds { get; set; }

        public Values Ids { get; set; }

        /// <summary>[T, top_k] float.</summary>
        public Values Weights { get; set; }

        /// <summary>[T, hidden], for identity experts.</summary>
        public Values X { get; set; }

        /// <summary>[T, latent].</summary>
        public Values Out { get; set; }

        public Values NTokensDevice { get; set; }
        public bool Accumulate { get; set; }
        public IntPtr Stream { get; set; }

        /// <summary>CPU threads of this call at most; 0: those of the runtime.</summary>
        public int NThreads { get; set; }

        internal unsafe moe_combine_args ToNative(Arguments a)
        {
            Arguments.Require("Rows", Rows);
            Arguments.Require("Ids", Ids);
            Arguments.Require("Out", Out);
            var shape = a.Shape;
            var args = default(moe_combine_args);
            args.struct_size = (uint)sizeof(moe_combine_args);
            var n = args.n_tokens = Ids.RowsOf(shape.TopK);
            args.rows_layout = RowIds != null ? InLayout.Sorted : InLayout.Tokens;
            args.n_rows = RowIds?.Elements ?? 0;
            args.rows = RowIds != null
                ? a.Rows("Rows", Rows, args.n_rows, shape.Latent, out args.rows_row_stride, shape.OutType)
                : a.Rows("Rows", Rows, n, shape.TopK * shape.Latent, out args.rows_row_stride, shape.OutType);
            args.row_ids = a.Dense("RowIds", RowIds, args.n_rows, ElementType.I32);
            args.ids = a.Ids("Ids", Ids, n, out args.ids_row_stride, out args.ids_type);
            args.weights = a.Rows("Weights", Weights, n, shape.TopK, out args.weights_row_stride, ElementType.F32);
            args.x = a.Rows("X", X, n, shape.Hidden, out args.x_row_stride, shape.XType);
            args.@out = a.Output("Out", Out, n, shape.Latent, out args.out_row_stride, shape.OutType);
            args.n_tokens_device = a.TrueTokens(NTokensDevice);
            args.accumulate = Accumulate ? 1 : 0;
            args.stream = Stream;
            args.n_threads = NThreads;
            return args;
        }
    }

    /// <summary>moe_finish_args.</summary>
    public sealed class FinishArgs
    {
        /// <summary>All, unless said otherwise.</summary>
        public FinishParts Parts { get; set; }

        /// <summary>[T, latent].</summary>
        public Values Routed { get; set; }

        /// <summary>[T, hidden].</summary>
        public Values X { get; set; }

        public Values Ids { get; set; }

        /// <summary>[T, top_k] float.</summary>
        public Values Weights { get; set; }

        /// <summary>[T, hidden].</summary>
        public Values Out { get; set; }

        public Values NTokensDevice { get; set; }
        public bool Accumulate { get; set; }
        public IntPtr Stream { get; set; }

        /// <summary>CPU threads of this call at most; 0: those of the runtime.</summary>
        public int NThreads { get; set; }

        internal unsafe moe_finish_args ToNative(Arguments a)
        {
            Arguments.Require("Out", Out);
            var shape = a.Shape;
            var args = default(moe_finish_args);
            args.struct_size = (uint)sizeof(moe_finish_args);
            var n = args.n_tokens = Routed?.RowsOf(shape.Latent) ?? X?.RowsOf(shape.Hidden) ?? 0;
            args.parts = (uint)Parts;
            args.routed = a.Rows("Routed", Routed, n, shape.Latent, out args.routed_row_stride, shape.OutType);
            args.x = a.Rows("X", X, n, shape.Hidden, out args.x_row_stride, shape.XType);
            args.ids = a.Ids("Ids", Ids, n, out args.ids_row_stride, out args.ids_type);
            args.weights = a.Rows("Weights", Weights, n, shape.TopK, out args.weights_row_stride, ElementType.F32);
            args.@out = a.Output("Out", Out, n, shape.Hidden, out args.out_row_stride, shape.OutType);
            args.n_tokens_device = a.TrueTokens(NTokensDevice);
            args.accumulate = Accumulate ? 1 : 0;
            args.stream = Stream;
            args.n_threads = NThreads;
            return args;
        }
    }

    public sealed unsafe partial class Plan
    {
        /// <summary>Runs the router alone.</summary>
        public void Route(Weights weights, Workspace workspace, RouteArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_route(Open, Weights.HandleOf(weights), Workspace.HandleOf(workspace), &native);
            }
        }

        /// <summary>Sorts the slots of tokens by expert.</summary>
        public void Dispatch(Workspace workspace, DispatchArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_dispatch(Open, Workspace.HandleOf(workspace), &native);
            }
        }

        /// <summary>Copies rows of x into the order of a dispatch.</summary>
        public void Gather(Workspace workspace, GatherArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_gather(Open, Workspace.HandleOf(workspace), &native);
            }
        }

        /// <summary>Runs the experts alone.</summary>
        public void Experts(Weights weights, Workspace workspace, ExpertsArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_experts(Open, Weights.HandleOf(weights), Workspace.HandleOf(workspace), &native);
            }
        }

        /// <summary>Adds the rows of each token.</summary>
        public void Combine(Workspace workspace, CombineArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_combine(Open, Workspace.HandleOf(workspace), &native);
            }
        }

        /// <summary>Adds what must be done once after the sum over slices.</summary>
        public void Finish(Weights weights, Workspace workspace, FinishArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_finish(Open, Weights.HandleOf(weights), Workspace.HandleOf(workspace), &native);
            }
        }
    }
}
