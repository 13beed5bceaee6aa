// The assembly System.Memory for Mono, which has its types in mscorlib: an assembly for every .NET refers to them here.
using System.Reflection;
using System.Runtime.CompilerServices;

[assembly: AssemblyVersion("4.0.1.1")]
[assembly: TypeForwardedTo(typeof(System.Span<>))]
[assembly: TypeForwardedTo(typeof(System.ReadOnlySpan<>))]
[assembly: TypeForwardedTo(typeof(System.Memory<>))]
[assembly: TypeForwardedTo(typeof(System.ReadOnlyMemory<>))]
[assembly: TypeForwardedTo(typeof(System.MemoryExtensions))]
[assembly: TypeForwardedTo(typeof(System.Buffers.MemoryHandle))]
[assembly: TypeForwardedTo(typeof(System.Runtime.InteropServices.MemoryMarshal))]
