using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Moe
{
    /// <summary>Finds the library, and sees to it that the imports are bound to the one found and to no other.</summary>
    internal static class Loader
    {
        /// <summary>The file name of the library that speaks this ABI. It is the library's own name too, so that on
        /// Linux an import by this name is bound to the file that was opened under any path.</summary>
        public const string Name = "libmoe.so.0.1";

        /// <summary>Its file name in a NuGet package, which is of one version.</summary>
        private const string NameInPackage = "libmoe.so";

        private static string FolderOfPackage =>
            RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? "runtimes/linux-arm64/native" : "runtimes/linux-x64/native";

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate uint NumberFunction();

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        private delegate IntPtr TextFunction();

        /// <summary>Opens the first candidate that loads, then asks for the ABI version, then for every function.</summary>
        public static string Open(string path)
        {
            var library = First(path, out var found);
            var version = Function<NumberFunction>(library, "moe_abi_version", found)();
            if (version != Header.AbiVersion)
                throw new LibraryLoadException(Status.Abi,
                    $"{found}: found ABI version {version}, wanted {Header.AbiVersion}");
            foreach (var name in Imports.Names)
                Symbol(library, name, found);
            Bind(library, found);
            return found;
        }

        private static IEnumerable<string> Candidates(string path)
        {
            if (!string.IsNullOrEmpty(path))
                return new[] { path };
            var named = Environment.GetEnvironmentVariable("MOE_LIBRARY");
            var beside = AppDomain.CurrentDomain.BaseDirectory;
            var all = new List<string>();
            if (!string.IsNullOrEmpty(named))
                all.Add(named);
            foreach (var folder in new[] { beside, Path.Combine(beside, FolderOfPackage) })
                foreach (var one in new[] { Path.Combine(folder, Name), Path.Combine(folder, NameInPackage) })
                    if (File.Exists(one))
                        all.Add(one);
            all.Add(Name);
            return all;
        }

        private static IntPtr First(string path, out string found)
        {
            var tried = new List<string>();
            foreach (var one in Candidates(path))
            {
                var library = TryOpen(one, out var reason);
                if (library != IntPtr.Zero)
                {
                    found = one;
                    return library;
                }
                tried.Add($"{one} ({reason})");
            }
            throw new LibraryLoadException(Status.NotFound, "no libmoe; tried " + string.Join(", ", tried)
                + ". MOE_LIBRARY names a file to take");
        }

        private static T Function<T>(IntPtr library, string name, string found)
        {
            return Marshal.GetDelegateForFunctionPointer<T>(Symbol(library, name, found));
        }

        private static IntPtr Symbol(IntPtr library, string name, string found)
        {
            var address = TrySymbol(library, name);
            if (address == IntPtr.Zero)
                throw new LibraryLoadException(Status.NotFound, $"{found}: lacks the function {name}");
            return address;
        }

        /// <summary>A static text has one address in each copy of the library: the imports' must be that of the copy
        /// that was looked at.</summary>
        [MethodImpl(MethodImplOptions.NoInlining)]
        private static void Bind(IntPtr library, string found)
        {
            var wanted = Function<TextFunction>(library, "moe_version_string", found)();
            var bound = IntPtr.Zero;
            var reason = "the runtime bound another " + Name;
            try
            {
                Resolve(library);
                bound = Imports.moe_version_string();
            }
            catch (Exception error) when (error is DllNotFoundException || error is EntryPointNotFoundException)
            {
                reason = error.Message;
            }
            if (bound != wanted)
                throw new LibraryLoadException(Status.NotFound,
                    $"{found}: loaded, but functions are not taken from it: {reason}");
        }

#if NET5_0_OR_GREATER
        private static IntPtr TryOpen(string path, out string reason)
        {
            reason = "it does not load";
            try
            {
                return NativeLibrary.Load(path);
            }
            catch (Exception error) when (error is DllNotFoundException || error is BadImageFormatException)
            {
                reason = error.Message;
                return IntPtr.Zero;
            }
        }

        private static IntPtr TrySymbol(IntPtr library, string name)
        {
            return NativeLibrary.TryGetExport(library, name, out var address) ? address : IntPtr.Zero;
        }

        private static bool isResolved;

        private static void Resolve(IntPtr library)
        {
            if (!isResolved)
                NativeLibrary.SetDllImportResolver(typeof(Loader).Assembly,
                    (name, assembly, path) => name == Name ? library : IntPtr.Zero);
            isResolved = true;
        }
#else
        private const int Now = 2;

        [DllImport("libdl.so.2")]
        private static extern IntPtr dlopen(byte[] path, int mode);

        [DllImport("libdl.so.2")]
        private static extern IntPtr dlsym(IntPtr library, byte[] name);

        [DllImport("libdl.so.2")]
        private static extern IntPtr dlerror();

        private static IntPtr TryOpen(string path, out string reason)
        {
            var library = dlopen(Utf8.Bytes(path), Now);
            reason = library == IntPtr.Zero ? Utf8.Read(dlerror()) : "";
            return library;
        }

        private static IntPtr TrySymbol(IntPtr library, string name) => dlsym(library, Utf8.Bytes(name));

        /// <summary>Nothing to do: the import's name is that of a library which is loaded.</summary>
        private static void Resolve(IntPtr library)
        {
        }
#endif
    }
}
