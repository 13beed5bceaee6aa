using System;
using System.Collections.Generic;

namespace Moe
{
    /// <summary>A plan, its weights, and workspaces for as many threads as call at once.</summary>
    public sealed unsafe class Layer : IDisposable
    {
        private readonly Runtime runtime;
        private readonly Stack<Workspace> idle = new Stack<Workspace>();
        private bool isClosed;

        /// <summary>Opens a checkpoint and loads its first MoE layer, or options.CheckpointLayer if that is not 0: on the CPU
        /// from float for up to 4096 tokens, where the options say nothing else.</summary>
        public Layer(string path, PlanOptions options = null)
        {
            var chosen = options == null ? new PlanOptions() : options.Copy();
            if (chosen.Device == DeviceKind.Auto)
                chosen.Device = DeviceKind.Cpu;
            if (chosen.XType == ElementType.None)
                chosen.XType = ElementType.F32;
            if (chosen.MaxTokens == 0)
                chosen.MaxTokens = 4096;
            runtime = chosen.Runtime;
            using (var checkpoint = new Checkpoint(path, new CheckpointOptions { Runtime = runtime }))
            {
                chosen.Checkpoint = checkpoint;
                if (chosen.CheckpointLayer == 0)
                    chosen.CheckpointLayer = checkpoint.LayerAt(0);
                Plan = new Plan(chosen);
                try
                {
                    Weights = Weights.Load(Plan, checkpoint, chosen.CheckpointLayer);
                }
                catch
                {
                    Plan.Dispose();
                    throw;
                }
            }
        }

        public Plan Plan { get; }

        public Weights Weights { get; }

        public int Hidden => (int)Plan.Shape.Hidden;

        /// <summary>x [T, hidden] to output [T, hidden]. Any number of threads may call it. Slots that were left out are a
        /// <see cref="FaultException"/> behind the call; on a GPU perhaps that of an earlier call, whose work has ended since.</summary>
        public void Forward(ReadOnlySpan<float> x, Span<float> output)
        {
            var workspace = Take();
            try
            {
                Plan.Forward(Weights, workspace, x, output);
                ThrowIfAny(workspace.TakeFaults());
            }
            finally
            {
                Give(workspace);
            }
        }

        /// <summary>Forward with all its arguments, in a workspace of the layer.</summary>
        public void Forward(ForwardArgs args)
        {
            var workspace = Take();
            try
            {
                Plan.Forward(Weights, workspace, args);
                ThrowIfAny(workspace.TakeFaults());
            }
            finally
            {
                Give(workspace);
            }
        }

        /// <summary>What calls that have ended left out since it was last told of. A program with a GPU asks after it has
        /// synchronized the stream.</summary>
        public (Faults Faults, long NSkipped) TakeFaults()
        {
            var faults = Faults.None;
            var nSkipped = 0L;
            lock (idle)
                foreach (var workspace in idle)
                {
                    var (more, n) = workspace.TakeFaults();
                    faults |= more;
                    nSkipped += n;
                }
            return (faults, nSkipped);
        }

        private static void ThrowIfAny((Faults Faults, long NSkipped) found)
        {
            if (found.Faults != Faults.None)
                throw new FaultException(found.Faults, found.NSkipped);
        }

        private Workspace Take()
        {
            lock (idle)
            {
                if (isClosed)
                    throw new ObjectDisposedException(nameof(Layer));
                if (idle.Count > 0)
                    return idle.Pop();
            }
            return new Workspace(Plan, new WorkspaceOptions { Runtime = runtime });
        }

        private void Give(Workspace workspace)
        {
            lock (idle)
            {
                if (!isClosed)
                {
                    idle.Push(workspace);
                    return;
                }
            }
            workspace.Dispose();
        }

        public void Dispose()
        {
            lock (idle)
            {
                isClosed = true;
                while (idle.Count > 0)
                    idle.Pop().Dispose();
            }
            Weights.Dispose();
            Plan.Dispose();
        }
    }
}
