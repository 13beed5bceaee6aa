using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace Moe
{
    /// <summary>Owns one handle of the library. Disposing twice is harmless; a call that is inside holds the handle open,
    /// and what nobody disposed the finalizer releases.</summary>
    internal abstract class Handle : SafeHandle
    {
        private readonly List<IDisposable> kept = new List<IDisposable>();

        protected Handle() : base(IntPtr.Zero, true)
        {
        }

        public override bool IsInvalid => handle == IntPtr.Zero;

        /// <summary>To be disposed once the library has let go.</summary>
        public void Keep(IDisposable one)
        {
            if (one != null)
                kept.Add(one);
        }

        /// <summary>True from Dispose on, also while calls inside still hold the handle open.</summary>
        public bool IsDisposed { get; private set; }

        public void ThrowIfDisposed()
        {
            if (IsDisposed)
                throw new ObjectDisposedException(GetType().Name.Replace("Handle", ""));
        }

        protected override void Dispose(bool isDisposing)
        {
            IsDisposed = true;
            base.Dispose(isDisposing);
        }

        protected abstract void Destroy(IntPtr pointer);

        protected override bool ReleaseHandle()
        {
            Destroy(handle);
            foreach (var one in kept)
                one.Dispose();
            return true;
        }
    }

    internal sealed class RuntimeHandle : Handle
    {
        /// <summary>NULL: the process default.</summary>
        public static readonly RuntimeHandle Default = new RuntimeHandle();

        protected override void Destroy(IntPtr pointer) => Imports.moe_runtime_destroy(pointer);
    }

    internal sealed class CheckpointHandle : Handle
    {
        protected override void Destroy(IntPtr pointer) => Imports.moe_checkpoint_destroy(pointer);
    }

    internal sealed class PlanHandle : Handle
    {
        protected override void Destroy(IntPtr pointer) => Imports.moe_plan_destroy(pointer);
    }

    internal sealed class WeightsHandle : Handle
    {
        protected override void Destroy(IntPtr pointer) => Imports.moe_weights_destroy(pointer);
    }

    internal sealed class WorkspaceHandle : Handle
    {
        protected override void Destroy(IntPtr pointer) => Imports.moe_workspace_destroy(pointer);
    }

    // Only the prototypes of moe.h name it: a Task loads in the background.
    internal sealed class LoadingHandle : Handle
    {
        protected override void Destroy(IntPtr pointer) => Imports.moe_loading_destroy(pointer);
    }

    /// <summary>Holds a handle open: for one whose pointer stands in a struct, or that memory of must stay.</summary>
    internal sealed class Lease : IDisposable
    {
        private readonly Handle held;
        private bool isOver;

        /// <summary>Of null it holds nothing, and its pointer is NULL.</summary>
        public Lease(Handle handle)
        {
            if (handle == null)
                return;
            handle.ThrowIfDisposed();
            var isHeld = false;
            handle.DangerousAddRef(ref isHeld);
            held = handle;
        }

        public IntPtr Pointer => held == null ? IntPtr.Zero : held.DangerousGetHandle();

        public void Dispose()
        {
            if (!isOver && held != null)
                held.DangerousRelease();
            isOver = true;
        }
    }

    /// <summary>Several things that are disposed as one.</summary>
    internal sealed class Together : IDisposable
    {
        private readonly List<IDisposable> all = new List<IDisposable>();

        public void Add(IDisposable one) => all.Add(one);

        public void Dispose()
        {
            foreach (var one in all)
                one.Dispose();
            all.Clear();
        }
    }
}
