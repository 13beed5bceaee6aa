import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import libmoe.*;

/** What the tests ask of what they get, the data of the cases, and the fixtures of tests/oracle. */
class Fixtures {
  static final String QWEN3 = "tests/oracle/fixtures/qwen3_moe_bf16";
  static Path root;
  static Path folder;

  interface Test {
    void run() throws Exception;
  }

  static void that(boolean isTrue, Object what) {
    if (!isTrue) throw new AssertionError(what);
  }

  static MoeException fails(int status, Test run, String... words) throws Exception {
    try {
      run.run();
    } catch (MoeException error) {
      that(error.status() == status, error);
      for (String word : words) that(error.getMessage().contains(word), word + " in " + error);
      return error;
    }
    throw new AssertionError("no error of status " + status);
  }

  /** What stands behind a key of a case in cases.toml. */
  static String data(String name, String key) throws IOException {
    String all = new String(Files.readAllBytes(root.resolve("bindings/conformance/cases.toml")), StandardCharsets.UTF_8);
    String section = all.substring(all.indexOf("id = \"" + name + "\""));
    int end = section.indexOf("[[case]]");
    Matcher found = Pattern.compile("(?m)^" + key + " = ([^#\n]*)").matcher(end < 0 ? section : section.substring(0, end));
    that(found.find(), name + " has no " + key);
    return found.group(1).trim();
  }

  static List<String> matches(String pattern, String text) {
    List<String> found = new ArrayList<>();
    for (Matcher one = Pattern.compile(pattern).matcher(text); one.find(); ) found.add(one.group(1));
    return found;
  }

  static List<String> texts(String name, String key) throws IOException {
    return matches("\"([^\"]*)\"", data(name, key));
  }

  static long whole(String name, String key) throws IOException {
    return Long.parseLong(data(name, key));
  }

  static long inside(String table, String key) {
    return Long.parseLong(matches("\\b" + key + " = (-?\\d+)", table).get(0));
  }

  /** The largest over rows of |got - wanted| / |wanted|; NaN is infinite, and zeros are one. */
  static double relativeL2(FloatBuffer got, FloatBuffer wanted, int rows) {
    that(got.capacity() == wanted.capacity() && rows > 0, "sizes");
    int width = got.capacity() / rows;
    double worst = 0;
    for (int row = 0; row < rows; row++) {
      double difference = 0, norm = 0;
      for (int i = row * width; i < (row + 1) * width; i++) {
        difference += Math.pow((double) got.get(i) - wanted.get(i), 2);
        norm += Math.pow(wanted.get(i), 2);
      }
      that(norm > 0, "row " + row + " that is wanted is zero");
      double error = Math.sqrt(difference / norm);
      worst = Double.isNaN(error) ? Double.POSITIVE_INFINITY : Math.max(worst, error);
    }
    return worst;
  }

  static void near(FloatBuffer got, FloatBuffer wanted, int rows, double limit) {
    double found = relativeL2(got, wanted, rows);
    that(found <= limit, "relative L2 " + found + ", more than " + limit);
  }

  static FloatBuffer nan(int n) {
    FloatBuffer made = Moe.floats(n);
    for (int i = 0; i < n; i++) made.put(i, Float.NaN);
    return made;
  }

  /** A fixture of tests/oracle with a handle of each kind. */
  static final class Golden implements AutoCloseable {
    final String path;
    final int layer, tokens, hidden, topK;
    final FloatBuffer x, y, weights;
    final IntBuffer ids;
    final Checkpoint checkpoint;
    final Plan plan;
    final Weights loaded;
    final Workspace workspace;

    Golden(String name) throws IOException {
      Path at = root.resolve(name);
      path = (Files.exists(at.resolve("model.gguf")) ? at.resolve("model.gguf") : at).toString();
      String facts = new String(Files.readAllBytes(at.resolve("case.json")), StandardCharsets.UTF_8);
      layer = Integer.parseInt(matches("\"layer\": (\\d+)", facts).get(0));
      int[] shape = new int[2];
      x = npy(at.resolve("x.npy"), shape).asFloatBuffer();
      tokens = shape[0];
      hidden = shape[1];
      y = npy(at.resolve("y.npy"), shape).asFloatBuffer();
      weights = npy(at.resolve("weights.npy"), shape).asFloatBuffer();
      topK = shape[1];
      ids = npy(at.resolve("ids.npy"), shape).asIntBuffer();
      checkpoint = new Checkpoint(null, path, null);
      plan = new Plan(null, desc());
      loaded = Weights.ofCheckpoint(plan, checkpoint, layer, null);
      workspace = workspaceOf(plan);
    }

    PlanDesc desc() {
      PlanDesc desc = new PlanDesc();
      desc.setCheckpoint(checkpoint);
      desc.setCheckpointLayer(layer);
      desc.setDevice(Moe.MOE_DEVICE_CPU);
      desc.setXType(Moe.MOE_TYPE_F32);
      desc.setMaxTokens(64);
      return desc;
    }

    ForwardArgs args() {
      ForwardArgs args = new ForwardArgs();
      args.setNTokens(tokens);
      args.setX(x);
      return args;
    }

    FloatBuffer forward(ForwardArgs args) {
      FloatBuffer out = nan(y.capacity());
      args.setOut(out);
      Moe.forward(plan, loaded, workspace, args);
      return out;
    }

    FloatBuffer forward() {
      return forward(args());
    }

    @Override
    public void close() {
      workspace.close();
      loaded.close();
      plan.close();
      checkpoint.close();
    }

    /** The values of a .npy file of version 1, in direct memory. */
    private static ByteBuffer npy(Path path, int[] shape) throws IOException {
      byte[] file = Files.readAllBytes(path);
      int end = 10 + ByteBuffer.wrap(file, 8, 2).order(ByteOrder.LITTLE_ENDIAN).getShort();
      String header = new String(file, 10, end - 10, StandardCharsets.US_ASCII);
      Matcher found = Pattern.compile("'descr': '<[fi]4', 'fortran_order': False, 'shape': \\((\\d+), (\\d+)\\)").matcher(header);
      that(found.find(), path + ": " + header);
      shape[0] = Integer.parseInt(found.group(1));
      shape[1] = Integer.parseInt(found.group(2));
      that(file.length - end == 4 * shape[0] * shape[1], path);
      ByteBuffer made = Moe.bytes(file.length - end);
      made.put(file, end, file.length - end);
      made.rewind();
      return made;
    }
  }

  static Workspace workspaceOf(Plan plan) {
    WorkspaceDesc desc = new WorkspaceDesc();
    desc.setPlan(plan);
    return new Workspace(null, desc);
  }
}
