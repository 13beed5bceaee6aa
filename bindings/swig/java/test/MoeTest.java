import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import libmoe.*;

/**
 * The Java that SWIG makes, case by case of bindings/conformance: it says "pass ID" or "fail ID why". usage: MoeTest ROOT
 * FOLDER, and FOLDER gets the explanations, for results.py to look at. MoeTest ROOT --gate only loads the library.
 */
public final class MoeTest extends Fixtures {
  public static void main(String[] arguments) throws Exception {
    root = Paths.get(arguments[0]);
    if (arguments[1].equals("--gate")) {
      System.out.println("version " + Moe.versionString());
      return;
    }
    folder = Paths.get(arguments[1]);
    Map<String, Test> tests = new LinkedHashMap<>();
    tests.put("ERR-01", MoeTest::statuses);
    tests.put("ERR-02", MoeTest::unknownStatus);
    tests.put("ERR-03", MoeTest::sentences);
    tests.put("ERR-04", MoeTest::sentencesOfThreads);
    tests.put("VER-01", MoeTest::versions);
    tests.put("LIFE-01", MoeTest::closingTwice);
    tests.put("LIFE-02", MoeTest::closedHandles);
    tests.put("LIFE-03", MoeTest::anyOrder);
    tests.put("THR-01", MoeTest::manyThreads);
    tests.put("BIG-02", MoeTest::largeCounts);
    tests.put("BAD-02", MoeTest::faults);
    tests.put("BAD-03", MoeTest::damagedCheckpoint);
    tests.put("PLAN-01", MoeTest::explanations);
    tests.put("PLAN-02", MoeTest::defaults);
    tests.put("PLAN-03", MoeTest::keys);
    tests.put("PLAN-04", MoeTest::candidates);
    tests.put("PLAN-05", MoeTest::unknownEnums);
    tests.put("LIST-01", MoeTest::formats);
    tests.put("LIST-02", MoeTest::lists);
    tests.put("FWD-01", MoeTest::goldenOutputs);
    tests.put("FWD-02", MoeTest::givenRouting);
    tests.put("FWD-03", MoeTest::stages);
    tests.put("FWD-04", MoeTest::tensorsByHand);
    tests.put("FWD-05", MoeTest::quantise);
    tests.put("scales", MoeTest::tiledScales);
    tests.put("tensors", MoeTest::tensorsOfACheckpoint);
    tests.put("mapping", MemoryTest::mapping);
    tests.put("borrowed", MemoryTest::borrowed);
    tests.put("reused", MemoryTest::reusedTensors);
    tests.put("memory", MemoryTest::givenMemory);
    int failed = 0;
    for (Map.Entry<String, Test> one : tests.entrySet()) {
      try {
        one.getValue().run();
        System.out.println("pass " + one.getKey());
      } catch (Throwable error) {
        failed++;
        System.out.println("fail " + one.getKey() + " " + error);
        error.printStackTrace();
      }
    }
    System.exit(failed == 0 ? 0 : 1);
  }

  // --- errors ---------------------------------------------------------------------------------------------------

  private static void statuses() throws Exception {
    String table = data("ERR-01", "statuses");
    List<String> names = matches("(\\w+) = ", table);
    for (String name : names) {
      int number = (int) inside(table, name);
      that(Moe.class.getField("MOE_ERROR_" + name).getInt(null) == number, name);
      MoeException error = fails(number, () -> Moe.check(number), Integer.toString(number));
      that(error.statusName().equals("MOE_ERROR_" + name), error);
    }
    that(names.size() == 17, names);
    fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> Moe.layerValidate(new LayerDesc()));
    fails(Moe.MOE_ERROR_NOT_FOUND, () -> Moe.formatByName("no such format", new Format()), "no such format");
    fails(Moe.MOE_ERROR_IO, () -> new Checkpoint(null, "/no/such/folder", null));
  }

  private static void unknownStatus() throws Exception {
    int number = (int) whole("ERR-02", "unknown_status");
    MoeException error = fails(number, () -> Moe.check(number), Integer.toString(number));
    that(error.statusName().equals(texts("ERR-02", "unknown_name").get(0)), error);
  }

  private static void sentences() throws Exception {
    String bad = data("ERR-03", "bad_layer");
    LayerDesc layer = new LayerDesc();
    layer.setHidden((int) inside(bad, "hidden"));
    layer.setIntermediate((int) inside(bad, "intermediate"));
    layer.setNExperts((int) inside(bad, "n_experts"));
    layer.setTopK((int) inside(bad, "top_k"));
    layer.setActivation((int) inside(bad, "activation"));
    layer.setIsGated((int) inside(bad, "is_gated"));
    String[] words = texts("ERR-03", "message_has").toArray(new String[0]);
    fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> Moe.layerValidate(layer), words);
    String file = texts("ERR-03", "absent_file").get(0);
    fails(Moe.MOE_ERROR_IO, () -> new Checkpoint(null, file, null), file);
    PlanDesc desc = new PlanDesc();
    fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> desc.setFormat(99, new Format()), "role");
  }

  private static void inParallel(int count, Test work) throws Exception {
    List<Throwable> problems = java.util.Collections.synchronizedList(new ArrayList<>());
    List<Thread> threads = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      Thread thread = new Thread(() -> {
        try {
          work.run();
        } catch (Throwable error) {
          problems.add(error);
        }
      });
      threads.add(thread);
      thread.start();
    }
    for (Thread one : threads) one.join();
    that(problems.isEmpty(), problems);
  }

  private static void sentencesOfThreads() throws Exception {
    long rounds = whole("ERR-04", "rounds");
    inParallel((int) whole("ERR-04", "threads"), () -> {
      String name = "format of " + Thread.currentThread().getName();
      for (long round = 0; round < rounds; round++)
        fails(Moe.MOE_ERROR_NOT_FOUND, () -> Moe.formatByName(name, new Format()), name);
    });
  }

  private static void versions() throws Exception {
    that(Moe.abiVersion() == whole("VER-01", "abi_version") && Moe.abiVersion() == Moe.MOE_ABI_VERSION, Moe.abiVersion());
    that(Moe.version() == Moe.MOE_VERSION_NUMBER, Moe.version());
    that(Moe.buildInfo().contains(texts("VER-01", "build_info_has").get(0) + Moe.versionString()), Moe.buildInfo());
  }

  private static void damagedCheckpoint() throws Exception {
    Path source = root.resolve(texts("BAD-03", "source").get(0));
    Path copy = Files.createDirectories(folder.resolve("damaged"));
    Files.write(copy.resolve("config.json"), Files.readAllBytes(source.resolve("config.json")));
    byte[] whole = Files.readAllBytes(source.resolve("model.safetensors"));
    Files.write(copy.resolve("model.safetensors"), java.util.Arrays.copyOf(whole, 100));
    fails((int) whole("BAD-03", "status"), () -> new Checkpoint(null, copy.toString(), null), "model.safetensors");
  }

  // --- handles ---------------------------------------------------------------------------------------------------

  private static void closingTwice() throws Exception {
    Golden g = new Golden(QWEN3);
    libmoe.Runtime runtime = new libmoe.Runtime(new RuntimeDesc());
    List<AutoCloseable> all = List.of(runtime, g.checkpoint, g.plan, g.loaded, g.workspace);
    that(all.size() == texts("LIFE-01", "handles").size(), "handles");
    for (AutoCloseable one : all) {
      one.close();
      one.close();
    }
  }

  private static void closed(Test run) throws Exception {
    try {
      run.run();
    } catch (IllegalStateException error) {
      that(error.getMessage().contains("closed"), error);
      return;
    }
    throw new AssertionError("a closed handle was used");
  }

  private static void closedHandles() throws Exception {
    Golden g = new Golden(QWEN3), living = new Golden(QWEN3);
    libmoe.Runtime runtime = new libmoe.Runtime(null);
    PlanDesc desc = g.desc();
    runtime.close();
    g.close();
    ForwardArgs args = living.args();
    args.setOut(Moe.floats(g.y.capacity()));
    closed(() -> new Checkpoint(runtime, g.path, null));
    closed(() -> g.checkpoint.layerOfIndex(0));
    closed(() -> g.desc());
    closed(() -> g.plan.explanation(Moe.MOE_EXPLAIN_TEXT));
    closed(() -> Moe.weightsMemory(g.loaded, new MemoryReport()));
    closed(() -> Moe.workspaceStatus(g.workspace, new WorkspaceFaults()));
    closed(() -> Moe.forward(g.plan, living.loaded, living.workspace, args));
    closed(() -> Moe.forward(living.plan, g.loaded, living.workspace, args));
    closed(() -> Moe.forward(living.plan, living.loaded, g.workspace, args));
    that(desc != null, desc);
    living.close();
  }

  private static void anyOrder() throws Exception {
    for (int ownership : new int[] {Moe.MOE_OWN_COPY, Moe.MOE_OWN_BORROW}) {
      Golden g = new Golden(texts("LIFE-03", "fixture").get(0));
      RuntimeDesc two = new RuntimeDesc();
      two.setNThreads(2);
      libmoe.Runtime runtime = new libmoe.Runtime(two);
      PlanDesc desc = g.desc();
      Plan first = new Plan(runtime, desc), second = new Plan(runtime, desc);
      LoadOptions options = new LoadOptions();
      options.setOwnership(ownership);
      Weights weights = Weights.ofCheckpoint(first, g.checkpoint, g.layer, options);
      runtime.close();
      g.checkpoint.close();
      first.close();
      Workspace workspace = workspaceOf(second);
      FloatBuffer out = nan(g.y.capacity());
      ForwardArgs args = g.args();
      args.setOut(out);
      Moe.forward(second, weights, workspace, args);
      near(out, g.y, g.tokens, Double.parseDouble(data("LIFE-03", "relative_l2")));
      weights.close();
      second.close();
      workspace.close();
      g.close();
    }
  }

  private static void manyThreads() throws Exception {
    try (Golden g = new Golden(texts("THR-01", "fixture").get(0))) {
      FloatBuffer wanted = g.forward();
      near(wanted, g.y, g.tokens, 1e-5);
      long rounds = whole("THR-01", "rounds");
      inParallel((int) whole("THR-01", "threads"), () -> {
        try (Workspace workspace = workspaceOf(g.plan)) {
          for (long round = 0; round < rounds; round++) {
            FloatBuffer out = nan(g.y.capacity());
            ForwardArgs args = g.args();
            args.setOut(out);
            Moe.forward(g.plan, g.loaded, workspace, args);
            that(out.equals(wanted), "other bits");
          }
        }
      });
    }
  }

  private static void faults() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      IntBuffer ids = Moe.ints(g.ids.capacity()), without = Moe.ints(g.ids.capacity());
      for (int i = 0; i < ids.capacity(); i++) {
        ids.put(i, i == 0 ? 1 << 20 : g.ids.get(i));
        without.put(i, i == 0 ? -1 : g.ids.get(i));
      }
      ForwardArgs args = given(g, ids);
      FloatBuffer found = g.forward(args);
      WorkspaceFaults faults = new WorkspaceFaults();
      Moe.workspaceStatus(g.workspace, faults);
      that(faults.getFaults() == whole("BAD-02", "fault") && faults.getNSkipped() == 1, faults.getFaults());
      Moe.workspaceStatus(g.workspace, faults);
      that(faults.getFaults() == 0, "not forgotten");
      that(found.equals(g.forward(given(g, without))), "the others do not count");
    }
  }

  private static ForwardArgs given(Golden g, IntBuffer ids) {
    ForwardArgs args = g.args();
    args.setRouting(Moe.MOE_ROUTING_IDS_AND_WEIGHTS);
    args.setIds(ids);
    args.setWeights(g.weights);
    return args;
  }

  private static void largeCounts() throws Exception {
    Format format = new Format();
    Moe.formatByName(texts("BIG-02", "format").get(0), format);
    long columns = whole("BIG-02", "columns"), many = whole("BIG-02", "overflowing_rows");
    that(format.dataBytes(whole("BIG-02", "rows"), columns) == whole("BIG-02", "data_bytes"), "bytes");
    fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> format.dataBytes(many, columns), Long.toString(many));
    try (Golden g = new Golden(QWEN3)) {
      PlanDesc desc = g.desc();
      desc.setMaxTokens(whole("BIG-02", "max_tokens"));
      fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> new Plan(null, desc), "max_tokens is " + desc.getMaxTokens());
    }
  }

  // --- plans and lists ---------------------------------------------------------------------------------------------

  private static void explanations() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      Files.write(folder.resolve("explain.json"), g.plan.explanation(Moe.MOE_EXPLAIN_JSON).getBytes(StandardCharsets.UTF_8));
      that(g.plan.explanation(Moe.MOE_EXPLAIN_TEXT).contains("cpu"), "text");
    }
  }

  private static void defaults() throws Exception {
    try (Golden g = new Golden(texts("PLAN-02", "fixture").get(0))) {
      Map<String, Integer> types = Map.of("f32", Moe.MOE_TYPE_F32, "bf16", Moe.MOE_TYPE_BF16, "f16", Moe.MOE_TYPE_F16);
      for (Map.Entry<String, Integer> one : types.entrySet()) {
        PlanDesc desc = new PlanDesc();
        desc.setCheckpoint(g.checkpoint);
        desc.setCheckpointLayer(g.layer);
        desc.setXType(one.getValue());
        desc.setMaxTokens(1);
        desc.setDevice(Moe.MOE_DEVICE_CPU);
        try (Plan plan = new Plan(null, desc)) {
          byte[] text = plan.explanation(Moe.MOE_EXPLAIN_JSON).getBytes(StandardCharsets.UTF_8);
          Files.write(folder.resolve("explain-" + one.getKey() + ".json"), text);
          that(plan.deviceKind() == Moe.MOE_DEVICE_CPU && !plan.deviceReason().isEmpty(), plan.deviceReason());
        }
      }
    }
  }

  private static void keys() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      PlanDesc larger = g.desc();
      larger.setMaxTokens(65);
      String key = Plan.keyOf(null, g.desc());
      that(key.length() == 32 && key.equals(Plan.keyOf(null, g.desc())) && !key.equals(Plan.keyOf(null, larger)), key);
      try (Plan other = new Plan(null, larger)) {
        that(other.layout().equals(g.plan.layout()) && g.loaded.layout().equals(g.plan.layout()), g.plan.layout());
      }
      that(g.plan.explanation(Moe.MOE_EXPLAIN_JSON).contains(key), key);
    }
  }

  private static void candidates() throws Exception {
    String stages = data("PLAN-04", "stages");
    try (Golden g = new Golden(QWEN3)) {
      for (String name : matches("(\\w+) = ", stages)) {
        int stage = (int) inside(stages, name), chosen = 0;
        Candidate one = new Candidate();
        for (int index = 0; next(g.plan, index, one); index++)
          if (one.getStage() == stage && one.getChosen() != 0) {
            chosen++;
            that(one.getKernel().equals(g.plan.kernelOf(stage, 1)) && one.getReasonCode().equals("chosen"), one.getKernel());
          }
        that(chosen == 1, name);
      }
      PlanDesc desc = g.desc();
      desc.setKernelFilter("no_such_kernel");
      fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> Moe.supports(null, desc), "no_such_kernel");
    }
  }

  private static boolean next(Plan plan, int index, Candidate one) {
    try {
      Moe.candidates(plan, index, one);
      return true;
    } catch (MoeException end) {
      that(end.status() == Moe.MOE_ERROR_NOT_FOUND && index > 0, end);
      return false;
    }
  }

  private static void unknownEnums() throws Exception {
    int number = (int) whole("PLAN-05", "unknown_value");
    try (Golden g = new Golden(QWEN3)) {
      PlanDesc desc = g.desc();
      desc.setResidency(number);
      fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> Moe.supports(null, desc), Integer.toString(number));
      LayerDesc layer = new LayerDesc();
      Moe.checkpointLayer(g.checkpoint, g.layer, layer);
      layer.setActivation(number);
      fails(Moe.MOE_ERROR_INVALID_ARGUMENT, () -> Moe.layerValidate(layer), Integer.toString(number));
      that(layer.getActivation() == number && Moe.typeName(number).equals("unknown"), layer.getActivation());
    }
  }

  private static void formats() throws Exception {
    List<String> names = new ArrayList<>();
    for (int i = 0; Moe.formatNameAt(i) != null; i++) names.add(Moe.formatNameAt(i));
    that(names.containsAll(texts("LIST-01", "formats")), names);
    for (String name : names) {
      Format format = new Format();
      FormatInfo info = new FormatInfo();
      Moe.formatByName(name, format);
      Moe.formatGetInfo(format, info);
      that(info.getName().equals(name) && info.getHasDecode() == 1 && info.getBitsPerWeight() > 0, name);
    }
    String size = data("LIST-01", "size");
    Format format = new Format();
    Moe.formatByName(matches("format = \"(\\w+)\"", size).get(0), format);
    long rows = inside(size, "rows"), columns = inside(size, "columns");
    that(format.dataBytes(rows, columns) == inside(size, "data_bytes"), "bytes");
    that(format.scaleBytes(rows, columns) == inside(size, "scale_bytes"), "bytes of scales");
  }

  private static void lists() throws Exception {
    List<String> families = new ArrayList<>();
    for (int i = 0; Moe.checkpointFamilyAt(i) != null; i++) families.add(Moe.checkpointFamilyAt(i));
    that(families.containsAll(texts("LIST-02", "families")), families);
    DeviceInfo info = new DeviceInfo();
    Moe.deviceGetInfo(Moe.MOE_DEVICE_CPU, 0, info);
    that(Moe.deviceCount(Moe.MOE_DEVICE_CPU) == 1 && info.getNCores() > 0 && !info.getName().isEmpty(), info.getName());
  }

  // --- results -------------------------------------------------------------------------------------------------------

  private static void goldenOutputs() throws Exception {
    double limit = Double.parseDouble(data("FWD-01", "relative_l2"));
    for (String name : texts("FWD-01", "fixtures"))
      try (Golden g = new Golden("tests/oracle/fixtures/" + name)) {
        IntBuffer ids = Moe.ints(g.ids.capacity());
        FloatBuffer weights = nan(g.weights.capacity());
        ForwardArgs args = g.args();
        args.setOutIds(ids);
        args.setOutWeights(weights);
        near(g.forward(args), g.y, g.tokens, limit);
        near(weights, g.weights, g.tokens, limit);
        that(ids.equals(g.ids), name);
      }
  }

  private static void givenRouting() throws Exception {
    double limit = Double.parseDouble(data("FWD-02", "relative_l2"));
    try (Golden g = new Golden(texts("FWD-02", "fixture").get(0))) {
      near(g.forward(given(g, g.ids)), g.y, g.tokens, limit);
      LayerDesc layer = new LayerDesc();
      Moe.checkpointLayer(g.checkpoint, g.layer, layer);
      FloatBuffer logits = nan(g.tokens * layer.getNExperts());
      ForwardArgs args = g.args();
      args.setOutLogits(logits);
      FloatBuffer computed = g.forward(args);
      IntBuffer ids = Moe.ints(g.ids.capacity());
      args = g.args();
      args.setRouting(Moe.MOE_ROUTING_LOGITS);
      args.setLogits(logits);
      args.setOutIds(ids);
      that(g.forward(args).equals(computed) && ids.equals(g.ids), "logits given back route otherwise");
      for (int i = 0; i < ids.capacity(); i++) ids.put(i, -1);
      FloatBuffer nobody = g.forward(given(g, ids));
      for (int i = 0; i < nobody.capacity(); i++) that(nobody.get(i) == 0, "ids of -1 do not give zero");
      Moe.forward(g.plan, g.loaded, g.workspace, new ForwardArgs());
    }
    try {
      new ForwardArgs().setX(FloatBuffer.allocate(3));
      that(false, "memory of the heap was taken");
    } catch (IllegalArgumentException error) {
      that(error.getMessage().contains("direct"), error);
    }
  }

  private static void stages() throws Exception {
    try (Golden g = new Golden(texts("FWD-03", "fixture").get(0))) {
      int slots = g.ids.capacity();
      LayerDesc layer = new LayerDesc();
      Moe.checkpointLayer(g.checkpoint, g.layer, layer);
      IntBuffer ids = Moe.ints(slots), rowIds = Moe.ints(slots);
      FloatBuffer weights = nan(slots), rows = nan(slots * g.hidden), routed = nan(g.y.capacity()), out = nan(g.y.capacity());
      java.nio.LongBuffer offsets = Moe.longs(layer.getNExperts() + 1);
      RouteArgs route = new RouteArgs();
      route.setNTokens(g.tokens);
      route.setX(g.x);
      route.setOutIds(ids);
      route.setOutWeights(weights);
      Moe.route(g.plan, g.loaded, g.workspace, route);
      DispatchArgs dispatch = new DispatchArgs();
      dispatch.setNTokens(g.tokens);
      dispatch.setIds(ids);
      dispatch.setOutOffsets(offsets);
      dispatch.setOutRowIds(rowIds);
      dispatch.setRowCapacity(slots);
      Moe.dispatch(g.plan, g.workspace, dispatch);
      ExpertsArgs experts = new ExpertsArgs();
      experts.setOutLayout(Moe.MOE_OUT_ROWS);
      experts.setNTokens(g.tokens);
      experts.setNRows(slots);
      experts.setX(g.x);
      experts.setOffsets(offsets);
      experts.setRowIds(rowIds);
      experts.setOut(rows);
      Moe.experts(g.plan, g.loaded, g.workspace, experts);
      CombineArgs combine = new CombineArgs();
      combine.setRowsLayout(Moe.MOE_IN_SORTED);
      combine.setNTokens(g.tokens);
      combine.setNRows(slots);
      combine.setRows(rows);
      combine.setRowIds(rowIds);
      combine.setIds(ids);
      combine.setWeights(weights);
      combine.setOut(routed);
      Moe.combine(g.plan, g.workspace, combine);
      FinishArgs finish = new FinishArgs();
      finish.setNTokens(g.tokens);
      finish.setRouted(routed);
      finish.setX(g.x);
      finish.setIds(ids);
      finish.setWeights(weights);
      finish.setOut(out);
      Moe.finish(g.plan, g.loaded, g.workspace, finish);
      near(out, g.y, g.tokens, Double.parseDouble(data("FWD-03", "relative_l2")));
    }
  }

  /** x and the weights of one token are such that the sums are short: expert e has gate 1/H, up (e + 1)/H and down 1. */
  private static void tensorsByHand() throws Exception {
    String fields = data("FWD-04", "layer");
    int h = (int) inside(fields, "hidden"), middle = (int) inside(fields, "intermediate"), n = (int) inside(fields, "n_experts");
    LayerDesc layer = new LayerDesc();
    layer.setHidden(h);
    layer.setIntermediate(middle);
    layer.setNExperts(n);
    layer.setTopK((int) inside(fields, "top_k"));
    layer.setHasRouter((int) inside(fields, "has_router"));
    layer.setScore((int) inside(fields, "score"));
    layer.setActivation((int) inside(fields, "activation"));
    layer.setIsGated((int) inside(fields, "is_gated"));
    FloatBuffer router = Moe.floats(n * h), gate = Moe.floats(n * middle * h), up = Moe.floats(n * middle * h),
        down = Moe.floats(n * middle * h), x = Moe.floats(h), wanted = Moe.floats(h);
    for (int i = 0; i < gate.capacity(); i++) {
      gate.put(i, 1f / h);
      up.put(i, (i / (middle * h) + 1f) / h);
      down.put(i, 1);
    }
    for (int i = 0; i < router.capacity(); i++) router.put(i, (i / h) / (float) h);
    double sum = 0, total = 0, result = 0;
    for (int i = 0; i < h; i++) sum += x.put(i, (i + 1f) / h).get(i);
    double mean = sum / h, act = mean / (1 + Math.exp(-mean));
    for (int e = 0; e < n; e++) total += Math.exp(e * mean);
    for (int e = n - layer.getTopK(); e < n; e++) result += Math.exp(e * mean) / total * middle * act * (e + 1) * mean;
    for (int i = 0; i < h; i++) wanted.put(i, (float) result);

    Format f32 = new Format();
    Moe.formatByName("f32", f32);
    PlanDesc desc = new PlanDesc();
    desc.setLayer(layer);
    desc.setDevice(Moe.MOE_DEVICE_CPU);
    desc.setXType(Moe.MOE_TYPE_F32);
    desc.setMaxTokens(1);
    for (int role : new int[] {Moe.MOE_ROLE_ROUTER, Moe.MOE_ROLE_GATE, Moe.MOE_ROLE_UP, Moe.MOE_ROLE_DOWN})
      desc.setFormat(role, f32);
    Plan plan = new Plan(null, desc);
    for (int ownership : new int[] {Moe.MOE_OWN_COPY, Moe.MOE_OWN_BORROW}) {
      WeightsDesc tensors = new WeightsDesc();
      tensors.setOwnership(ownership);
      tensors.addTensor(tensor(Moe.MOE_ROLE_ROUTER, f32, 0, n, h, router));
      tensors.addTensor(tensor(Moe.MOE_ROLE_GATE, f32, n, middle, h, gate));
      tensors.addTensor(tensor(Moe.MOE_ROLE_UP, f32, n, middle, h, up));
      tensors.addTensor(tensor(Moe.MOE_ROLE_DOWN, f32, n, h, middle, down));
      System.gc();
      try (Weights weights = Weights.ofTensors(plan, tensors); Workspace workspace = workspaceOf(plan)) {
        MemoryReport report = new MemoryReport();
        Moe.weightsMemory(weights, report);
        that(report.bytesOf(Moe.MOE_ROLE_GATE) == 4L * gate.capacity(), report.bytesOf(Moe.MOE_ROLE_GATE));
        that(report.getBorrowedBytes() > 0 == (ownership == Moe.MOE_OWN_BORROW), report.getBorrowedBytes());
        FloatBuffer out = nan(h);
        ForwardArgs args = new ForwardArgs();
        args.setNTokens(1);
        args.setX(x);
        args.setOut(out);
        Moe.forward(plan, weights, workspace, args);
        near(out, wanted, 1, Double.parseDouble(data("FWD-04", "relative_l2")));
      }
    }
    plan.close();
  }

  private static void tensorsOfACheckpoint() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      WeightsDesc desc = new WeightsDesc();
      desc.setOwnership(Moe.MOE_OWN_BORROW);
      int count = 0;
      long bytes = 0;
      try {
        for (; ; count++) {
          Tensor one = g.checkpoint.tensorOfIndex(g.layer, count);
          bytes += one.mapped().capacity();
          desc.addTensor(one);
        }
      } catch (MoeException end) {
        that(end.status() == Moe.MOE_ERROR_NOT_FOUND && count > 0 && bytes > 0, end);
      }
      System.gc();
      try (Weights weights = Weights.ofTensors(g.plan, desc)) {
        FloatBuffer out = nan(g.y.capacity());
        ForwardArgs args = g.args();
        args.setOut(out);
        Moe.forward(g.plan, weights, g.workspace, args);
        near(out, g.y, g.tokens, 1e-5);
      }
      Format format = new Format();
      g.checkpoint.formatOf(g.layer, Moe.MOE_ROLE_GATE, format);
      that(format.getType() == Moe.MOE_TYPE_BF16, format.getType());
    }
  }

  private static Tensor tensor(int role, Format format, int experts, int rows, int columns, FloatBuffer values) {
    Tensor made = new Tensor();
    made.setRole(role);
    made.setExpert(Moe.MOE_ALL_EXPERTS);
    made.setFormat(format);
    made.setNExperts(experts);
    made.setRows(rows);
    made.setColumns(columns);
    made.setData(values);
    made.setDataBytes(4L * values.capacity());
    return made;
  }

  private static void tiledScales() throws Exception {
    int rows = 130, columns = 80, groups = 5;
    int size = (int) Moe.scaleLayoutSize(Moe.MOE_SCALE_LAYOUT_TILED_128X4, rows, groups);
    that(size == 4 * 512, size);
    ByteBuffer linear = Moe.bytes(rows * groups), tiles = Moe.bytes(size), codes = Moe.bytes(rows * columns / 2);
    for (int i = 0; i < linear.capacity(); i++) linear.put(i, (byte) (i % 120));
    for (int i = 0; i < codes.capacity(); i++) codes.put(i, (byte) i);
    ConvertScalesArgs args = new ConvertScalesArgs();
    args.setLayout(Moe.MOE_SCALE_LAYOUT_TILED_128X4);
    args.setRows(rows);
    args.setColumns(groups);
    args.setSource(linear);
    args.setSourceBytes(linear.capacity());
    args.setScales(tiles);
    args.setScaleBytes(tiles.capacity());
    Moe.convertScales(args);
    that(tiles.get(21) == linear.get(33 * groups + 1) && tiles.get(512) == linear.get(4), tiles.get(21));
    FloatBuffer wanted = dequantised(linear, Moe.MOE_SCALE_LAYOUT_LINEAR, codes, rows, columns);
    FloatBuffer got = dequantised(tiles, Moe.MOE_SCALE_LAYOUT_TILED_128X4, codes, rows, columns);
    that(got.equals(wanted) && wanted.get(columns + 2) != 0, "tiled scales give other values");
    args.setScaleBytes(size - 1);
    try {
      Moe.convertScales(args);
      that(false, "a buffer that is too small was taken");
    } catch (MoeException error) {
      that(error.status() == Moe.MOE_ERROR_INVALID_ARGUMENT, error);
    }
  }

  private static FloatBuffer dequantised(ByteBuffer scales, int layout, ByteBuffer codes, int rows, int columns)
      throws Exception {
    Format format = new Format();
    Moe.formatByName("nvfp4", format);
    FloatBuffer global = Moe.floats(1), out = nan(rows * columns);
    global.put(0, 0.5f);
    Tensor tensor = tensor(Moe.MOE_ROLE_GATE, format, 0, rows, columns, Moe.floats(0));
    tensor.setExpert(0);
    tensor.setData(codes);
    tensor.setDataBytes(codes.capacity());
    tensor.setScales(scales);
    tensor.setScaleBytes(scales.capacity());
    tensor.setScaleLayout(layout);
    tensor.setGlobalScale(global);
    tensor.setNGlobalScales(1);
    Moe.dequantize(tensor, 0, out, out.capacity());
    return out;
  }

  private static void quantise() throws Exception {
    int rows = (int) whole("FWD-05", "rows"), columns = (int) whole("FWD-05", "columns");
    Format format = new Format();
    Moe.formatByName(texts("FWD-05", "format").get(0), format);
    java.util.Random random = new java.util.Random(1);
    FloatBuffer matrix = Moe.floats(rows * columns), again = nan(rows * columns);
    for (int i = 0; i < matrix.capacity(); i++) matrix.put(i, (float) random.nextGaussian());
    ByteBuffer bytes = Moe.bytes(format.dataBytes(rows, columns));
    QuantizeArgs args = new QuantizeArgs();
    args.setFormat(format);
    args.setSource(matrix);
    args.setRows(rows);
    args.setColumns(columns);
    args.setData(bytes);
    args.setDataBytes(bytes.capacity());
    Moe.quantize(args);
    Tensor tensor = tensor(Moe.MOE_ROLE_GATE, format, 0, rows, columns, Moe.floats(0));
    tensor.setExpert(0);
    tensor.setData(bytes);
    tensor.setDataBytes(bytes.capacity());
    that(tensor.mapped().equals(bytes), "mapped");
    Moe.dequantize(tensor, 0, again, again.capacity());
    near(again, matrix, 1, Double.parseDouble(data("FWD-05", "relative_l2")));
    try (Golden g = new Golden(QWEN3)) {
      PlanDesc desc = g.desc();
      desc.setDevice(Moe.MOE_DEVICE_CUDA);
      desc.setDeviceIndex(1000);
      try {
        new Plan(null, desc);
        that(false, "a device that is not there was replaced");
      } catch (MoeException error) {
        int wanted = Moe.buildInfo().contains("cuda") ? error.status() : Moe.MOE_ERROR_NOT_BUILT;
        that(error.status() == wanted && error.status() != Moe.MOE_ERROR_INTERNAL, error);
      }
    }
  }
}
