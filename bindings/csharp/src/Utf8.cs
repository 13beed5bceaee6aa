using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Moe
{
    /// <summary>Text as C has it: UTF-8 with a NUL behind.</summary>
    internal static unsafe class Utf8
    {
        public static byte[] Bytes(string text)
        {
            var bytes = new byte[Encoding.UTF8.GetByteCount(text) + 1];
            Encoding.UTF8.GetBytes(text, 0, text.Length, bytes, 0);
            return bytes;
        }

        /// <summary>null for NULL.</summary>
        public static string Read(IntPtr address)
        {
            if (address == IntPtr.Zero)
                return null;
            var length = 0;
            while (((byte*)address)[length] != 0)
                length++;
            return Encoding.UTF8.GetString((byte*)address, length);
        }
    }
}
