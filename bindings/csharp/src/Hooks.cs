using System;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Moe
{
    /// <summary>Serves every byte that handles keep. Both functions may be called from any thread, the finalizer's too. Memory
    /// is C's or the device's, never an array of .NET.</summary>
    public interface IAllocator
    {
        /// <summary>Memory of that space, or zero; alignment is a power of two up to 4096.</summary>
        IntPtr Allocate(ulong bytes, ulong alignment, Space space, IntPtr stream);

        /// <summary>Takes it back, with the same bytes, alignment and space.</summary>
        void Release(IntPtr memory, ulong bytes, ulong alignment, Space space, IntPtr stream);
    }

    /// <summary>Runs task for every index below nTasks, on any threads, and returns when all are done.</summary>
    public delegate void ParallelFor(int nTasks, Action<int> task);

    /// <summary>Bytes done of a total, on the thread that loads; true cancels the load (<see cref="Status.Cancelled"/>).</summary>
    public delegate bool LoadProgress(ulong done, ulong total);

    /// <summary>The callbacks of a runtime. They live until the last handle that came from it is gone.</summary>
    internal sealed class Hooks
    {
        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate void LogFn(LogLevel level, IntPtr message, IntPtr user);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate IntPtr AllocateFn(ulong bytes, ulong alignment, Space space, IntPtr stream, IntPtr user);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate void ReleaseFn(IntPtr memory, ulong bytes, ulong alignment, Space space, IntPtr stream, IntPtr user);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate void ParallelForFn(int nTasks, IntPtr task, IntPtr taskData, IntPtr user);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate void TaskFn(int index, IntPtr taskData);

        // C keeps their addresses: static, so that they are never collected.
        private static readonly LogFn logFn = OnLog;
        private static readonly AllocateFn allocateFn = OnAllocate;
        private static readonly ReleaseFn releaseFn = OnRelease;
        private static readonly ParallelForFn parallelForFn = OnParallelFor;

        private readonly RuntimeOptions options;
        private GCHandle self;
        private int users;

        public Hooks(RuntimeOptions options)
        {
            this.options = options;
        }

        /// <summary>Keeps the callbacks alive until it is disposed; of null nothing.</summary>
        public static IDisposable Keep(Hooks hooks) => hooks == null ? null : new User(hooks);

        private sealed class User : IDisposable
        {
            private Hooks hooks;

            public User(Hooks hooks)
            {
                this.hooks = hooks;
                lock (hooks)
                    if (hooks.users++ == 0)
                        hooks.self = GCHandle.Alloc(hooks);
            }

            public void Dispose()
            {
                var last = Interlocked.Exchange(ref hooks, null);
                if (last == null)
                    return;
                lock (last)
                    if (--last.users == 0)
                        last.self.Free();
            }
        }

        /// <summary>Sets what the options have; the hooks must be kept.</summary>
        public unsafe void Set(ref moe_runtime_desc desc, moe_allocator* allocator)
        {
            var user = GCHandle.ToIntPtr(self);
            if (options.Log != null)
            {
                desc.log = Marshal.GetFunctionPointerForDelegate(logFn);
                desc.log_user_data = user;
            }
            if (options.ParallelFor != null)
            {
                desc.parallel_for = Marshal.GetFunctionPointerForDelegate(parallelForFn);
                desc.parallel_for_user_data = user;
            }
            if (options.Allocator == null)
                return;
            allocator->struct_size = (uint)sizeof(moe_allocator);
            allocator->allocate = Marshal.GetFunctionPointerForDelegate(allocateFn);
            allocator->release = Marshal.GetFunctionPointerForDelegate(releaseFn);
            allocator->user_data = user;
            desc.allocator = (IntPtr)allocator;
        }

        private static Hooks Of(IntPtr user) => (Hooks)GCHandle.FromIntPtr(user).Target;

        /// <summary>Keeps an exception on this side of the C frames.</summary>
        private void Guard(Action run)
        {
            try
            {
                run();
            }
            catch (Exception error)
            {
                Report(error);
            }
        }

        private void Report(Exception error)
        {
            try
            {
                if (options.OnError != null)
                    options.OnError(error);
                else
                    Console.Error.WriteLine(error);
            }
            catch (Exception)
            {
                // There is nobody left to tell.
            }
        }

        private static void OnLog(LogLevel level, IntPtr message, IntPtr user)
        {
            var hooks = Of(user);
            hooks.Guard(() => hooks.options.Log(level, Utf8.Read(message)));
        }

        private static IntPtr OnAllocate(ulong bytes, ulong alignment, Space space, IntPtr stream, IntPtr user)
        {
            var hooks = Of(user);
            var memory = IntPtr.Zero;
            hooks.Guard(() => memory = hooks.options.Allocator.Allocate(bytes, alignment, space, stream));
            return memory;
        }

        private static void OnRelease(IntPtr memory, ulong bytes, ulong alignment, Space space, IntPtr stream, IntPtr user)
        {
            var hooks = Of(user);
            hooks.Guard(() => hooks.options.Allocator.Release(memory, bytes, alignment, space, stream));
        }

        /// <summary>Runs every task once, also those that the caller's function leaves or throws over, and waits for all.</summary>
        private static void OnParallelFor(int nTasks, IntPtr task, IntPtr taskData, IntPtr user)
        {
            var hooks = Of(user);
            var function = Marshal.GetDelegateForFunctionPointer<TaskFn>(task);
            var isStarted = new int[nTasks];
            using (var unfinished = new CountdownEvent(Math.Max(nTasks, 1)))
            {
                Action<int> run = index =>
                {
                    if (Interlocked.Exchange(ref isStarted[index], 1) != 0)
                        return;
                    function(index, taskData);
                    unfinished.Signal();
                };
                hooks.Guard(() => hooks.options.ParallelFor(nTasks, run));
                for (var index = 0; index < nTasks; index++)
                    run(index);
                if (nTasks > 0)
                    unfinished.Wait();
            }
        }
    }

    /// <summary>A progress callback, or a token, for one load. An exception in the callback cancels, and is thrown once the
    /// call has returned.</summary>
    internal sealed class ProgressHook : IDisposable
    {
        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate int ProgressFn(ulong done, ulong total, IntPtr user);

        private static readonly ProgressFn progressFn = OnProgress;

        private readonly LoadOptions options;
        private GCHandle self;
        private ExceptionDispatchInfo thrown;

        public ProgressHook(LoadOptions options)
        {
            this.options = options;
            if (options.Progress != null || options.Cancellation.CanBeCanceled)
                self = GCHandle.Alloc(this);
        }

        public IntPtr Function => self.IsAllocated ? Marshal.GetFunctionPointerForDelegate(progressFn) : IntPtr.Zero;

        public IntPtr User => self.IsAllocated ? GCHandle.ToIntPtr(self) : IntPtr.Zero;

        public void Run(Action load)
        {
            options.Cancellation.ThrowIfCancellationRequested();
            try
            {
                load();
            }
            catch (MoeException error) when (error.Status == Status.Cancelled)
            {
                thrown?.Throw();
                if (options.Cancellation.IsCancellationRequested)
                    throw new OperationCanceledException(error.Message, error, options.Cancellation);
                throw;
            }
        }

        private static int OnProgress(ulong done, ulong total, IntPtr user)
        {
            var hook = (ProgressHook)GCHandle.FromIntPtr(user).Target;
            try
            {
                var cancel = hook.options.Progress != null && hook.options.Progress(done, total);
                return cancel || hook.options.Cancellation.IsCancellationRequested ? 1 : 0;
            }
            catch (Exception error)
            {
                hook.thrown = ExceptionDispatchInfo.Capture(error);
                return 1;
            }
        }

        public void Dispose()
        {
            if (self.IsAllocated)
                self.Free();
        }
    }
}
