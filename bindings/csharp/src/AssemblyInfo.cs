using System.Reflection;
using System.Runtime.CompilerServices;

[assembly: AssemblyTitle("libmoe, the Mixture-of-Experts layer of a language model, from .NET")]
[assembly: AssemblyVersion("0.1.0.0")]
[assembly: InternalsVisibleTo("MoeTests")]
