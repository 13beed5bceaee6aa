using System;
using System.Collections.Generic;

namespace Moe
{
    /// <summary>The library itself. Every call loads it first if nobody has. All functions may be called from any thread.</summary>
    public static class Library
    {
        /// <summary>The ABI version this assembly was written for; a library of another one is refused.</summary>
        public const uint RequiredAbiVersion = Header.AbiVersion;

        private static readonly object gate = new object();
        private static volatile Native native;

        /// <summary>Loads libmoe: the file given and no other, or the first that loads of $MOE_LIBRARY, libmoe.so.0.1 or
        /// libmoe.so beside the program or in its runtimes/linux-x64/native, and libmoe.so.0.1 wherever the system looks. Its ABI
        /// version is compared before anything else is looked up. Once it has succeeded it does nothing.</summary>
        /// <exception cref="LibraryLoadException">It says what was tried, and why each was not taken.</exception>
        public static void Load(string path = null)
        {
            if (native != null)
                return;
            lock (gate)
            {
                if (native != null)
                    return;
                Path = Loader.Open(path);
                native = new Native();
            }
        }

        /// <summary>The file that was loaded, null before.</summary>
        public static string Path { get; private set; }

        /// <summary>The functions, of a library that is loaded.</summary>
        internal static Native Native
        {
            get
            {
                Load();
                return native;
            }
        }

        /// <summary>Major * 1000000 + minor * 1000 + patch.</summary>
        public static uint Version => Native.moe_version();

        /// <summary>Like "0.1.0".</summary>
        public static string VersionString => Utf8.Read(Native.moe_version_string());

        /// <summary>The ABI version of the library.</summary>
        public static uint AbiVersion => Native.moe_abi_version();

        /// <summary>Lines "key=value": version, compiler, backends. Put it in bug reports.</summary>
        public static string BuildInfo => Utf8.Read(Native.moe_build_info());

        /// <summary>The formats that <see cref="Format.ByName"/> knows.</summary>
        public static IReadOnlyList<string> FormatNames => Listed(Native.moe_format_name_at);

        /// <summary>The model families whose checkpoints can be read.</summary>
        public static IReadOnlyList<string> Families => Listed(Native.moe_checkpoint_family_at);

        /// <summary>"MOE_ERROR_BUSY" and the like; "MOE_ERROR_UNKNOWN" for a number the library does not know.</summary>
        public static string NameOf(Status status) => Utf8.Read(Native.moe_status_name(status));

        /// <summary>"gate", "shared_down" and the like; "unknown" for other values.</summary>
        public static string NameOf(Role role) => Utf8.Read(Native.moe_role_name(role));

        /// <summary>"f32", "f8_e4m3" and the like; "unknown" for other values.</summary>
        public static string NameOf(ElementType type) => Utf8.Read(Native.moe_type_name(type));

        private static IReadOnlyList<string> Listed(Func<uint, IntPtr> nameAt)
        {
            var names = new List<string>();
            for (var one = nameAt(0); one != IntPtr.Zero; one = nameAt((uint)names.Count))
                names.Add(Utf8.Read(one));
            return names;
        }
    }
}
