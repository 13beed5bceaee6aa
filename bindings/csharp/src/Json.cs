using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace Moe
{
    /// <summary>Reads the JSON that the library writes: objects are dictionaries, arrays lists, numbers doubles.</summary>
    internal sealed class Json
    {
        private readonly string text;
        private int at;

        private Json(string text)
        {
            this.text = text;
        }

        public static object Parse(string text)
        {
            var reader = new Json(text);
            var value = reader.Value();
            if (reader.Next() != '\0')
                throw reader.Wrong();
            return value;
        }

        private FormatException Wrong() => new FormatException($"not JSON at character {at}");

        /// <summary>The next character that is no blank; NUL at the end.</summary>
        private char Next()
        {
            while (at < text.Length && char.IsWhiteSpace(text[at]))
                at++;
            return at < text.Length ? text[at] : '\0';
        }

        private bool Skip(char wanted)
        {
            if (Next() != wanted)
                return false;
            at++;
            return true;
        }

        private void Expect(char wanted)
        {
            if (!Skip(wanted))
                throw Wrong();
        }

        private object Value()
        {
            switch (Next())
            {
                case '{':
                    return Object();
                case '[':
                    return List();
                case '"':
                    return Text();
                case 't':
                    return Word("true", true);
                case 'f':
                    return Word("false", false);
                case 'n':
                    return Word("null", null);
                default:
                    return Number();
            }
        }

        private object Word(string word, object value)
        {
            if (string.CompareOrdinal(text, at, word, 0, word.Length) != 0)
                throw Wrong();
            at += word.Length;
            return value;
        }

        private object Number()
        {
            var begin = at;
            while (at < text.Length && "+-.eE0123456789".IndexOf(text[at]) >= 0)
                at++;
            var digits = text.Substring(begin, at - begin);
            if (!double.TryParse(digits, NumberStyles.Float, CultureInfo.InvariantCulture, out var value))
                throw Wrong();
            return value;
        }

        private Dictionary<string, object> Object()
        {
            var found = new Dictionary<string, object>();
            Expect('{');
            while (!Skip('}'))
            {
                if (found.Count > 0)
                    Expect(',');
                Next();
                var name = Text();
                Expect(':');
                found.Add(name, Value());
            }
            return found;
        }

        private List<object> List()
        {
            var found = new List<object>();
            Expect('[');
            while (!Skip(']'))
            {
                if (found.Count > 0)
                    Expect(',');
                found.Add(Value());
            }
            return found;
        }

        private string Text()
        {
            Expect('"');
            var found = new StringBuilder();
            while (at < text.Length && text[at] != '"')
                found.Append(text[at++] == '\\' ? Escaped() : text[at - 1]);
            Expect('"');
            return found.ToString();
        }

        private char Escaped()
        {
            var kind = at < text.Length ? text[at++] : '\0';
            var index = "\"\\/bfnrt".IndexOf(kind);
            if (index >= 0)
                return "\"\\/\b\f\n\r\t"[index];
            if (kind != 'u' || at + 4 > text.Length)
                throw Wrong();
            at += 4;
            return (char)int.Parse(text.Substring(at - 4, 4), NumberStyles.HexNumber, CultureInfo.InvariantCulture);
        }
    }
}
