using System;

namespace Moe
{
    /// <summary>A call that failed. A status of a newer library that <see cref="Moe.Status"/> has no name for keeps its
    /// number: <c>(int)error.Status</c>. Ask for one by a filter: <c>catch (MoeException e) when (e.Status == Status.Busy)</c>.
    /// </summary>
    public class MoeException : Exception
    {
        internal MoeException(Status status, string statusName, string sentence, string call)
            : base($"{call}: {statusName} ({(int)status}): {sentence}")
        {
            Status = status;
            StatusName = statusName;
            Sentence = sentence;
            Call = call;
        }

        /// <summary>The kind of failure.</summary>
        public Status Status { get; }

        /// <summary>"MOE_ERROR_BUSY" and the like; "MOE_ERROR_UNKNOWN" for a number that the library does not know.</summary>
        public string StatusName { get; }

        /// <summary>The library's sentence: it names the field or the file, and the value.</summary>
        public string Sentence { get; }

        /// <summary>The function of moe.h.</summary>
        public string Call { get; }

        /// <summary>Throws unless status is good. The sentence is kept per thread: this must be the calling thread's next
        /// word with the library.</summary>
        internal static void Check(string call, Status status)
        {
            if (status == Status.Ok)
                return;
            var sentence = Utf8.Read(Imports.moe_last_error());
            throw new MoeException(status, Utf8.Read(Imports.moe_status_name(status)), sentence, call);
        }
    }

    /// <summary>A call of a <see cref="Layer"/> left out slots or rows, such as those of ids that the layer does not have.
    /// Everything else was computed and is in the output.</summary>
    public sealed class FaultException : Exception
    {
        internal FaultException(Faults faults, long nSkipped)
            : base($"{nSkipped} slots or rows were skipped: {faults}")
        {
            Faults = faults;
            NSkipped = nSkipped;
        }

        public Faults Faults { get; }

        /// <summary>Slots or rows.</summary>
        public long NSkipped { get; }
    }

    /// <summary>The library could not be used: it was not found (<see cref="Status.NotFound"/>; the message says what was
    /// tried, or which function it lacks), or it speaks another ABI (<see cref="Status.Abi"/>).</summary>
    public sealed class LibraryLoadException : MoeException
    {
        internal LibraryLoadException(Status status, string sentence)
            : base(status, status == Status.Abi ? "MOE_ERROR_ABI" : "MOE_ERROR_NOT_FOUND", sentence, "Library.Load")
        {
        }
    }
}
