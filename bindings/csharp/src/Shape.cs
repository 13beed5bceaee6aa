using System.Collections.Generic;

namespace Moe
{
    /// <summary>The sizes and types that the arrays of a plan's calls have.</summary>
    public sealed class Shape
    {
        internal Shape(string explanation)
        {
            var facts = Object(Json.Parse(explanation));
            var layer = Object(facts["layer"]);
            var slice = Object(facts["slice"]);
            var types = Object(facts["types"]);
            Hidden = Number(layer, "hidden");
            TopK = Number(layer, "top_k");
            NExperts = Number(layer, "n_experts");
            NAllExperts = NExperts + Number(layer, "n_identity_experts");
            Latent = Number(layer, "latent") != 0 ? Number(layer, "latent") : Hidden;
            NLocalExperts = Number(slice, "n_local_experts");
            NFeatures = (HasGate(facts) ? 2 : 1) * (long)(double)((List<object>)slice["intermediate"])[1];
            OutWidth = Equals(slice["partial"], true) ? Latent : Hidden;
            XType = TypeNamed(types["x"]);
            RouterInputType = TypeNamed(types["router_input"]);
            OutType = TypeNamed(types["out"]);
            IsCpu = Equals(Object(facts["device"])["kind"], "cpu");
        }

        public long Hidden { get; }

        /// <summary>Hidden where the layer has no latent.</summary>
        public long Latent { get; }

        public long TopK { get; }
        public long NExperts { get; }

        /// <summary>With identity experts.</summary>
        public long NAllExperts { get; }

        public long NLocalExperts { get; }

        /// <summary>Of the slice before the activation: gate and up, or up alone.</summary>
        public long NFeatures { get; }

        /// <summary>Of a reduced output.</summary>
        public long OutWidth { get; }

        public ElementType XType { get; }
        public ElementType RouterInputType { get; }
        public ElementType OutType { get; }
        public bool IsCpu { get; }

        private static Dictionary<string, object> Object(object value) => (Dictionary<string, object>)value;

        /// <summary>0 where the explanation leaves it out.</summary>
        private static long Number(Dictionary<string, object> from, string name)
        {
            return from.TryGetValue(name, out var value) ? (long)(double)value : 0;
        }

        private static bool HasGate(Dictionary<string, object> facts)
        {
            foreach (var one in (List<object>)Object(facts["weights"])["matrices"])
                if (Equals(Object(one)["role"], "gate"))
                    return true;
            return false;
        }

        private static ElementType TypeNamed(object name)
        {
            foreach (var one in new[] { ElementType.F32, ElementType.F16, ElementType.BF16 })
                if (Equals(Library.NameOf(one), name))
                    return one;
            return ElementType.None;
        }
    }
}
