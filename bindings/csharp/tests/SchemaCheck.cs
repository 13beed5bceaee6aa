using System.Collections.Generic;
using System.Linq;
using System.Text.RegularExpressions;
using Table = System.Collections.Generic.Dictionary<string, object>;

/// <summary>The part of JSON schema that docs/explain.schema.json uses; any other keyword is a problem.</summary>
internal sealed class SchemaCheck
{
    private readonly Table root;

    public SchemaCheck(Table root, object found) : this(root, root, found)
    {
    }

    private SchemaCheck(Table root, object schema, object found)
    {
        this.root = root;
        Value("", (Table)schema, found);
    }

    public List<string> Problems { get; } = new List<string>();

    public int Checked { get; private set; }

    private void Value(string place, Table schema, object found)
    {
        Checked++;
        foreach (var one in schema)
            if (!Keyword(place, schema, one.Key, one.Value, found))
                Problems.Add($"{place}: {found} breaks {one.Key} {one.Value}");
        if (found is Table)
            Members(place, schema, (Table)found);
        if (found is List<object>)
            Items(place, schema, (List<object>)found);
    }

    private void Members(string place, Table schema, Table found)
    {
        var properties = schema.ContainsKey("properties") ? (Table)schema["properties"] : new Table();
        schema.TryGetValue("additionalProperties", out var others);
        foreach (var one in found)
            if (properties.ContainsKey(one.Key))
                Value(place + "." + one.Key, (Table)properties[one.Key], one.Value);
            else if (others is Table)
                Value(place + "." + one.Key, (Table)others, one.Value);
            else if (Equals(others, false))
                Problems.Add($"{place}.{one.Key} is not in the schema");
    }

    private void Items(string place, Table schema, List<object> found)
    {
        var prefix = schema.ContainsKey("prefixItems") ? (List<object>)schema["prefixItems"] : new List<object>();
        for (var i = 0; i < found.Count; i++)
            if (i < prefix.Count)
                Value($"{place}[{i}]", (Table)prefix[i], found[i]);
            else if (schema.ContainsKey("items"))
                Value($"{place}[{i}]", (Table)schema["items"], found[i]);
    }

    private bool Holds(object schema, object found) => new SchemaCheck(root, schema, found).Problems.Count == 0;

    private bool Keyword(string place, Table schema, string keyword, object wanted, object found)
    {
        var list = found as List<object>;
        switch (keyword)
        {
            case "$ref":
                Value(place, (Table)((Table)root["$defs"])[((string)wanted).Replace("#/$defs/", "")], found);
                return true;
            case "allOf":
                foreach (var one in (List<object>)wanted)
                    Value(place, (Table)one, found);
                return true;
            case "contains":
                return Contains(schema, list);
            case "if":
                var branch = Holds(wanted, found) ? "then" : "else";
                return !schema.ContainsKey(branch) || Holds(schema[branch], found);
            case "not":
                return !Holds(wanted, found);
            case "type":
                return wanted is List<object> ? ((List<object>)wanted).Any(one => IsOf(one, found)) : IsOf(wanted, found);
            case "const":
                return Equals(found, wanted);
            case "enum":
                return ((List<object>)wanted).Any(one => Equals(one, found));
            case "required":
                return !(found is Table) || ((List<object>)wanted).All(name => ((Table)found).ContainsKey((string)name));
            case "minimum":
                return !(found is double) || (double)found >= (double)wanted;
            case "maximum":
                return !(found is double) || (double)found <= (double)wanted;
            case "exclusiveMinimum":
                return !(found is double) || (double)found > (double)wanted;
            case "multipleOf":
                return !(found is double) || (double)found % (double)wanted == 0;
            case "minLength":
                return !(found is string) || ((string)found).Length >= (double)wanted;
            case "pattern":
                return !(found is string) || Regex.IsMatch((string)found, (string)wanted);
            case "minItems":
                return list == null || list.Count >= (double)wanted;
            case "maxItems":
                return list == null || list.Count <= (double)wanted;
            default:
                return " $schema $id $defs title description properties additionalProperties items prefixItems minContains maxContains then else "
                    .Contains($" {keyword} ");
        }
    }

    private bool Contains(Table schema, List<object> list)
    {
        var count = list == null ? 0 : list.Count(one => Holds(schema["contains"], one));
        var least = schema.ContainsKey("minContains") ? (double)schema["minContains"] : 1;
        return count >= least && (!schema.ContainsKey("maxContains") || count <= (double)schema["maxContains"]);
    }

    private static bool IsOf(object type, object found)
    {
        switch ((string)type)
        {
            case "null":
                return found == null;
            case "boolean":
                return found is bool;
            case "string":
                return found is string;
            case "number":
                return found is double;
            case "integer":
                return found is double && (double)found % 1 == 0;
            case "array":
                return found is List<object>;
            default:
                return found is Table;
        }
    }
}
