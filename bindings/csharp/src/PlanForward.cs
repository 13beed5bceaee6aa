using System;
using System.Runtime.InteropServices;

namespace Moe
{
    /// <summary>moe_forward_args. The tokens are the rows of X. The routing is computed, or comes from Logits, from Ids, or
    /// from Ids and Weights, whichever are given. Values are memory of the plan's device: arrays for a CPU plan,
    /// <see cref="Values.At"/> for CUDA.</summary>
    public sealed class ForwardArgs
    {
        /// <summary>[T, hidden].</summary>
        public Values X { get; set; }

        /// <summary>[T, hidden]; PerSlot [T, top_k * latent].</summary>
        public Values Out { get; set; }

        public Values RouterInput { get; set; }

        /// <summary>[T, all experts] float.</summary>
        public Values Logits { get; set; }

        /// <summary>[T, top_k] int or long.</summary>
        public Values Ids { get; set; }

        /// <summary>[T, top_k] float, BFloat16 or Float16.</summary>
        public Values Weights { get; set; }

        /// <summary>[T] int or long.</summary>
        public Values TokenIds { get; set; }

        /// <summary>[T] sbyte: which tokens the second selection bias chooses for.</summary>
        public Values UsesSecondBias { get; set; }

        /// <summary>[experts] int.</summary>
        public Values ExpertMap { get; set; }

        /// <summary>One int.</summary>
        public Values NTokensDevice { get; set; }

        public bool PerSlot { get; set; }
        public bool Accumulate { get; set; }
        public Values OutLogits { get; set; }

        /// <summary>[T, top_k] int.</summary>
        public Values OutIds { get; set; }

        /// <summary>[T, top_k] float.</summary>
        public Values OutWeights { get; set; }

        /// <summary>[all experts] long.</summary>
        public Values OutExpertCounts { get; set; }

        public IntPtr Stream { get; set; }

        /// <summary>CPU threads of this call at most; 0: those of the runtime.</summary>
        public int NThreads { get; set; }

        internal unsafe moe_forward_args ToNative(Arguments a)
        {
            Arguments.Require("X", X);
            Arguments.Require("Out", Out);
            if (Weights != null)
                Arguments.Require("Ids", Ids);
            var shape = a.Shape;
            var n = X.RowsOf(shape.Hidden);
            var args = default(moe_forward_args);
            args.struct_size = (uint)sizeof(moe_forward_args);
            args.n_tokens = n;
            args.routing = Arguments.RoutingOf(Logits, Ids, Weights);
            args.x = a.Rows("X", X, n, shape.Hidden, out args.x_row_stride, shape.XType);
            args.router_input = a.Rows("RouterInput", RouterInput, n, shape.Hidden, out args.router_input_row_stride,
                shape.RouterInputType);
            args.logits = a.Rows("Logits", Logits, n, shape.NAllExperts, out args.logits_row_stride, ElementType.F32);
            args.ids = a.Ids("Ids", Ids, n, out args.ids_row_stride, out args.ids_type);
            args.weights = a.Rows("Weights", Weights, n, shape.TopK, out args.weights_row_stride, ElementType.F32,
                ElementType.BF16, ElementType.F16);
            args.weights_type = Weights?.Type ?? ElementType.None;
            args.token_ids = a.DenseIds("TokenIds", TokenIds, n, out args.token_ids_type);
            args.uses_second_bias = a.Dense("UsesSecondBias", UsesSecondBias, n, ElementType.I8);
            args.expert_map = a.ExpertMap(ExpertMap, out args.n_expert_map);
            args.n_tokens_device = a.TrueTokens(NTokensDevice);
            args.accumulate = Accumulate ? 1 : 0;
            args.stream = Stream;
            args.n_threads = NThreads;
            SetOutputs(a, ref args, n);
            return args;
        }

        private void SetOutputs(Arguments a, ref moe_forward_args args, long n)
        {
            var shape = a.Shape;
            args.out_layout = PerSlot ? OutLayout.PerSlot : OutLayout.Reduced;
            args.@out = a.Output("Out", Out, n, PerSlot ? shape.TopK * shape.Latent : shape.OutWidth, out args.out_row_stride,
                shape.OutType);
            args.out_logits = a.Output("OutLogits", OutLogits, n, shape.NAllExperts, out args.out_logits_row_stride,
                ElementType.F32);
            args.out_ids = a.Output("OutIds", OutIds, n, shape.TopK, out args.out_ids_row_stride, ElementType.I32);
            args.out_weights = a.Output("OutWeights", OutWeights, n, shape.TopK, out args.out_weights_row_stride,
                ElementType.F32);
            args.out_expert_counts = a.DenseOutput("OutExpertCounts", OutExpertCounts, shape.NAllExperts, ElementType.I64);
        }
    }

    public sealed unsafe partial class Plan
    {
        /// <summary>Runs the whole layer. Of a CPU plan it returns when it is done, of a CUDA plan when the work is on the
        /// stream.</summary>
        public void Forward(Weights weights, Workspace workspace, ForwardArgs args)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_forward(Open, Weights.HandleOf(weights), Workspace.HandleOf(workspace), &native);
            }
        }

        /// <summary>The same for rows of float [T, hidden] in host memory, all else computed.</summary>
        public void Forward(Weights weights, Workspace workspace, ReadOnlySpan<float> x, Span<float> output)
        {
            fixed (float* xs = &MemoryMarshal.GetReference(x), outs = &MemoryMarshal.GetReference(output))
                Forward(weights, workspace, new ForwardArgs { X = Given(xs, x.Length), Out = Given(outs, output.Length) });
        }

        /// <summary>The same with the routing [T, top_k] given.</summary>
        public void Forward(Weights weights, Workspace workspace, ReadOnlySpan<float> x, ReadOnlySpan<int> ids,
            ReadOnlySpan<float> expertWeights, Span<float> output)
        {
            fixed (float* xs = &MemoryMarshal.GetReference(x), outs = &MemoryMarshal.GetReference(output),
                   given = &MemoryMarshal.GetReference(expertWeights))
            fixed (int* chosen = &MemoryMarshal.GetReference(ids))
                Forward(weights, workspace, new ForwardArgs
                {
                    X = Given(xs, x.Length), Out = Given(outs, output.Length), Weights = Given(given, expertWeights.Length),
                    Ids = Values.Pinned(chosen, ElementType.I32, ids.Length),
                });
        }

        private static Values Given(float* address, int length) => Values.Pinned(address, ElementType.F32, length);

        /// <summary>Forward entered by nThreads threads with equal arguments but for threadIndex; they wait for each other.
        /// CPU plans only.</summary>
        public void ForwardSpmd(Weights weights, Workspace workspace, ForwardArgs args, int threadIndex, int nThreads)
        {
            using (var arguments = new Arguments(this))
            {
                var native = args.ToNative(arguments);
                Library.Native.moe_forward_spmd(Open, Weights.HandleOf(weights), Workspace.HandleOf(workspace), &native,
                    threadIndex, nThreads);
            }
        }
    }
}
