using System;
using System.Collections.Generic;
using Mono.Cecil;

/// <summary>Retarget IN OUT: makes of an assembly that mcs compiled one for every .NET.
///
/// Mono has Span and its kin in mscorlib, and mcs refers to them there. Elsewhere they are in the assembly System.Memory, and
/// Stack is in System: references to these types are moved there. Other references to mscorlib, System and System.Core stay,
/// since .NET Core has assemblies of those names that forward to its own.</summary>
internal static class Retarget
{
    private static readonly AssemblyNameReference memory = Assembly("System.Memory", "4.0.1.1", 0xcc, 0x7b, 0x13, 0xff, 0xcd, 0x2d, 0xdd, 0x51);

    private static readonly AssemblyNameReference system = Assembly("System", "4.0.0.0", 0xb7, 0x7a, 0x5c, 0x56, 0x19, 0x34, 0xe0, 0x89);

    private static readonly Dictionary<string, AssemblyNameReference> homes = new Dictionary<string, AssemblyNameReference>
    {
        { "System.Span`1", memory },
        { "System.ReadOnlySpan`1", memory },
        { "System.Memory`1", memory },
        { "System.ReadOnlyMemory`1", memory },
        { "System.MemoryExtensions", memory },
        { "System.Buffers.MemoryHandle", memory },
        { "System.Runtime.InteropServices.MemoryMarshal", memory },
        { "System.Collections.Generic.Stack`1", system },
    };

    private static AssemblyNameReference Assembly(string name, string version, params byte[] publicKeyToken)
    {
        return new AssemblyNameReference(name, new Version(version)) { PublicKeyToken = publicKeyToken };
    }

    private static AssemblyNameReference In(ModuleDefinition module, AssemblyNameReference wanted)
    {
        foreach (var one in module.AssemblyReferences)
            if (one.Name == wanted.Name)
                return one;
        module.AssemblyReferences.Add(wanted);
        return wanted;
    }

    private static int Main(string[] arguments)
    {
        var module = ModuleDefinition.ReadModule(arguments[0]);
        foreach (var type in module.GetTypeReferences())
            if (!type.IsNested && type.Scope.Name == "mscorlib" && homes.TryGetValue(type.FullName, out var home))
                type.Scope = In(module, home);
        module.Write(arguments[1]);
        return 0;
    }
}
