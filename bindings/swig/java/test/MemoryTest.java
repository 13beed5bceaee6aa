import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.List;
import libmoe.*;

/** Memory in use is not collected: tests that MoeTest takes in. */
final class MemoryTest extends Fixtures {
  private static boolean gone(List<WeakReference<?>> seen) throws Exception {
    for (int round = 0; round < 20; round++) {
      boolean all = true;
      for (WeakReference<?> one : seen) all &= one.get() == null;
      if (all) return true;
      System.gc();
      System.runFinalization();
      Thread.sleep(5);
    }
    return false;
  }

  private static List<WeakReference<?>> watch(Object... objects) {
    List<WeakReference<?>> seen = new ArrayList<>();
    for (Object one : objects) seen.add(new WeakReference<>(one));
    return seen;
  }

  private static List<Tensor> tensorsOf(Checkpoint checkpoint, int layer) {
    List<Tensor> all = new ArrayList<>();
    try {
      while (true) all.add(checkpoint.tensorOfIndex(layer, all.size()));
    } catch (MoeException end) {
      that(end.status() == Moe.MOE_ERROR_NOT_FOUND && !all.isEmpty(), end);
    }
    return all;
  }

  static void mapping() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      Checkpoint checkpoint = new Checkpoint(null, g.path, null);
      List<WeakReference<?>> seen = watch(checkpoint);
      Tensor one = checkpoint.tensorOfIndex(g.layer, 1);
      checkpoint = null;
      that(!gone(seen), "a tensor does not keep its checkpoint");
      Format format = one.getFormat();
      ByteBuffer bytes = one.mapped().slice();
      one = null;
      that(!gone(seen), "the bytes of a tensor do not keep its checkpoint");
      bytes.get(0);
      bytes = null;
      that(!gone(seen) && format.getType() == Moe.MOE_TYPE_BF16, "a format does not keep the tensor that it is in");
      format = null;
      that(gone(seen), "the checkpoint stays");
    }
  }

  private static List<WeakReference<?>> updateAll(Golden g, Weights weights) {
    Checkpoint other = new Checkpoint(null, g.path, null);
    for (Tensor one : tensorsOf(other, g.layer)) Moe.weightsUpdate(weights, one, 0);
    return watch(other);
  }

  private static void forward(Golden g, Weights weights, Workspace workspace) {
    FloatBuffer out = nan(g.y.capacity());
    ForwardArgs args = g.args();
    args.setOut(out);
    Moe.forward(g.plan, weights, workspace, args);
    near(out, g.y, g.tokens, 1e-5);
  }

  static void borrowed() throws Exception {
    for (int ownership : new int[] {Moe.MOE_OWN_COPY, Moe.MOE_OWN_BORROW})
      try (Golden g = new Golden(QWEN3)) {
        boolean borrows = ownership == Moe.MOE_OWN_BORROW;
        WeightsDesc desc = new WeightsDesc();
        desc.setOwnership(ownership);
        for (Tensor one : tensorsOf(g.checkpoint, g.layer)) desc.addTensor(one);
        Weights weights = Weights.ofTensors(g.plan, desc);
        desc = null;
        List<WeakReference<?>> first = updateAll(g, weights);
        that(gone(first) != borrows, "what weights of ownership " + ownership + " borrow from");
        forward(g, weights, g.workspace);
        List<WeakReference<?>> second = updateAll(g, weights);
        that(gone(first) && gone(second) != borrows, "the second update");
        forward(g, weights, g.workspace);
        weights.close();
        that(gone(second), "what was borrowed stays");
      }
  }

  /** What is given to a struct later is not what the weights borrowed from. */
  static void reusedTensors() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      WeightsDesc desc = new WeightsDesc();
      desc.setOwnership(Moe.MOE_OWN_BORROW);
      List<WeakReference<?>> seen = new ArrayList<>();
      List<Tensor> tensors = tensorsOf(g.checkpoint, g.layer);
      for (Tensor one : tensors) {
        ByteBuffer bytes = Moe.bytes(one.getDataBytes());
        bytes.put(one.mapped()).rewind();
        one.setData(bytes);
        seen.addAll(watch(bytes));
        desc.addTensor(one);
      }
      try (Weights weights = Weights.ofTensors(g.plan, desc)) {
        for (Tensor one : tensors) one.setData(null);
        for (WeakReference<?> one : seen) that(!gone(List.of(one)), "borrowed bytes are collected");
        forward(g, weights, g.workspace);
      }
    }
  }

  static void givenMemory() throws Exception {
    try (Golden g = new Golden(QWEN3)) {
      MemoryReport report = new MemoryReport();
      Moe.weightsMemory(g.loaded, report);
      ByteBuffer bytes = Moe.bytes(report.getHostBytes());
      LoadOptions options = new LoadOptions();
      options.setOwnership(Moe.MOE_OWN_CALLER);
      options.setMemory(bytes);
      options.setMemoryBytes(bytes.capacity());
      Weights weights = Weights.ofCheckpoint(g.plan, g.checkpoint, g.layer, options);
      WorkspaceNeed need = new WorkspaceNeed();
      Moe.planWorkspaceSize(g.plan, 64, need);
      ByteBuffer scratch = Moe.bytes(need.getHostBytes());
      WorkspaceDesc desc = new WorkspaceDesc();
      desc.setPlan(g.plan);
      desc.setHostMemory(scratch);
      desc.setHostBytes(scratch.capacity());
      Workspace workspace = new Workspace(null, desc);
      List<WeakReference<?>> ofWeights = watch(bytes), ofWorkspace = watch(scratch);
      bytes = scratch = null;
      options = null;
      desc = null;
      that(!gone(ofWeights) && !gone(ofWorkspace), "memory in use is collected");
      forward(g, weights, workspace);
      Plan plan = new Plan(null, g.desc());
      List<WeakReference<?>> ofPlan = watch(plan);
      try (Workspace other = workspaceOf(plan)) {
        plan = null;
        that(gone(ofPlan), "a workspace keeps a plan");
      }
      weights.close();
      workspace.close();
      that(gone(ofWeights) && gone(ofWorkspace), "memory stays");
    }
  }
}
