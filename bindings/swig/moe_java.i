// Java: an error is a MoeException, memory is a direct java.nio.Buffer, handles are AutoCloseable, enums are ints.
%include "enumsimple.swg"
%javaconst(1);
%rename("%(lowercamelcase)s", %$isvariable, %$ismember) "";
%rename("%(lowercamelcase)s", %$isfunction, %$ismember) "";

// uint64_t is a long: BigInteger is for numbers that are reckoned with, and these are byte counts.
%apply long long { uint64_t };
%apply int { uint32_t };

%{
#include <stdint.h>

static void moe_swig_throw(JNIEnv *jenv, moe_status status) {
    jstring name = (*jenv)->NewStringUTF(jenv, moe_status_name(status));
    jstring sentence = (*jenv)->NewStringUTF(jenv, moe_swig_message());
    jclass kind = (*jenv)->FindClass(jenv, "libmoe/MoeException");
    jmethodID make = kind ? (*jenv)->GetMethodID(jenv, kind, "<init>", "(ILjava/lang/String;Ljava/lang/String;)V") : NULL;
    jobject error = make ? (*jenv)->NewObject(jenv, kind, make, (jint)status, name, sentence) : NULL;
    if (error) (*jenv)->Throw(jenv, (jthrowable)error);
}

/* The address of a direct buffer; of null NULL. Anything else is an exception. */
static void *moe_swig_address(JNIEnv *jenv, jobject buffer) {
    void *address = buffer ? (*jenv)->GetDirectBufferAddress(jenv, buffer) : NULL;
    if (buffer && !address && (*jenv)->GetDirectBufferCapacity(jenv, buffer) != 0)
        (*jenv)->ThrowNew(jenv, (*jenv)->FindClass(jenv, "java/lang/IllegalArgumentException"), "the buffer is not direct");
    return address;
}
%}

%exception {
    moe_swig_status = MOE_OK;
    $action
    if (moe_swig_status != MOE_OK) {
        moe_swig_throw(jenv, moe_swig_status);
        return $null;
    }
}

// A status that is given is an int; one that comes back is nothing, or the exception.
%typemap(jni) moe_status "void"
%typemap(jtype) moe_status "void"
%typemap(jstype) moe_status "void"
%typemap(javaout) moe_status "{ $jnicall; }"
%typemap(out) moe_status { if ($1 != MOE_OK) { moe_swig_throw(jenv, $1); return $null; } }
%typemap(jni) moe_status status "jint"
%typemap(jtype) moe_status status "int"
%typemap(jstype) moe_status status "int"

// --- memory ------------------------------------------------------------------------------------------------------

// What a struct points to is kept by the struct's object, and is not read back: see Tensor.mapped.
%define MOE_MEMORY(type)
%typemap(jni) type "jobject"
%typemap(jtype) type "java.nio.Buffer"
%typemap(jstype) type "java.nio.Buffer"
%typemap(javain) type "keep(\"$1_name\", $javainput)"
%typemap(javaout) type "{ throw new UnsupportedOperationException(\"what a struct points to is not read back\"); }"
%typemap(in) type {
    $1 = ($1_ltype)moe_swig_address(jenv, $input);
    if ((*jenv)->ExceptionCheck(jenv)) return $null;
}
%typemap(out) type { $result = NULL; }
%enddef
MOE_MEMORY(void *)
MOE_MEMORY(const void *)
MOE_MEMORY(float *)
MOE_MEMORY(const float *)
MOE_MEMORY(const int8_t *)
MOE_MEMORY(int32_t *)
MOE_MEMORY(const int32_t *)
MOE_MEMORY(int64_t *)
MOE_MEMORY(const int64_t *)

// A CUDA stream is an address that comes from elsewhere.
%typemap(jni) void *stream "jlong"
%typemap(jtype) void *stream "long"
%typemap(jstype) void *stream "long"
%typemap(javain) void *stream "$javainput"
%typemap(javaout) void *stream "{ return $jnicall; }"
%typemap(in) void *stream { $1 = (void *)(intptr_t)$input; }
%typemap(out) void *stream { $result = (jlong)(intptr_t)$1; }

// What is read back from a struct lives no longer than that.
%define MOE_KEPT(type, name)
%typemap(javain) const type *name "$javaclassname.getCPtr(keep(\"name\", $javainput))"
%typemap(javaout) const type *name {
    long cPtr = $jnicall;
    if (cPtr == 0) return null;
    $javaclassname made = new $javaclassname(cPtr, $owner);
    made.hold("struct", this);
    return made;
  }
%enddef
MOE_KEPT(moe_layer_desc, layer)
MOE_KEPT(moe_checkpoint, checkpoint)
MOE_KEPT(moe_plan, plan)
MOE_KEPT(moe_slice, slice)
MOE_KEPT(moe_format, format)
%typemap(javain) const moe_format *of_role "$javaclassname.getCPtr(keep(\"format\" + role, $javainput))"
%typemap(javain) const moe_tensor *one_more "$javaclassname.getCPtr(keep(\"tensor\" + holds(), $javainput))"

%typemap(javabase) SWIGTYPE "Moe.Keeper"
%typemap(javacode) SWIGTYPE %{
  private <T> T keep(String name, T one) { return hold(name, one); }
%}
%pragma(java) modulecode=%{
  /** Holds what its native side points to. */
  static class Keeper {
    private final java.util.HashMap<String, Object> held = new java.util.HashMap<>();

    /** It lives until another is held under that name, or as long as this object. */
    synchronized <T> T hold(String name, T one) {
      held.put(name, one);
      return one;
    }

    /** What another holds now, and what that holds in turn: it may be given other things later. */
    void holdAllOf(String name, Keeper other) {
      java.util.Set<Object> all = java.util.Collections.newSetFromMap(new java.util.IdentityHashMap<>());
      other.gather(all);
      hold(name, all);
    }

    private synchronized void gather(java.util.Set<Object> all) {
      for (Object one : held.values()) {
        if (one == null || one instanceof Plan) continue; // no handle refers to a plan
        if (all.add(one) && one instanceof Keeper) ((Keeper) one).gather(all);
      }
    }

    synchronized int holds() { return held.size(); }

    synchronized void letGo() { held.clear(); }
  }

  private static final java.lang.ref.Cleaner CLEANER = java.lang.ref.Cleaner.create();

  /** What memory lies in lives as long as any buffer of it: a cleaner refers to that. */
  static java.nio.ByteBuffer in(Keeper owner, java.nio.ByteBuffer memory) {
    Keeper place = new Keeper();
    place.holdAllOf("memory", owner);
    if (memory != null) CLEANER.register(memory, place::letGo);
    return memory;
  }

  /** A call needs its arguments for itself alone. */
  private static <T> T keep(String name, T one) { return one; }

  /** Direct memory for n floats. */
  public static java.nio.FloatBuffer floats(int n) { return bytes(4L * n).asFloatBuffer(); }

  /** Direct memory for n ints. */
  public static java.nio.IntBuffer ints(int n) { return bytes(4L * n).asIntBuffer(); }

  /** Direct memory for n longs. */
  public static java.nio.LongBuffer longs(int n) { return bytes(8L * n).asLongBuffer(); }

  /** Direct memory, zero, in the machine's order of bytes, on 64 bytes as memory for weights and workspaces must be. */
  public static java.nio.ByteBuffer bytes(long n) {
    java.nio.ByteBuffer memory = java.nio.ByteBuffer.allocateDirect(Math.toIntExact(n + 63));
    int begin = (64 - memory.alignmentOffset(0, 64)) % 64;
    memory.position(begin).limit(begin + (int) n);
    return memory.slice().order(java.nio.ByteOrder.nativeOrder());
  }
%}

// --- handles -----------------------------------------------------------------------------------------------------

%define MOE_JAVA_HANDLE(handle)
%typemap(javainterfaces) struct handle "AutoCloseable"
%typemap(check) struct handle *self {
    if (!$1) {
        (*jenv)->ThrowNew(jenv, (*jenv)->FindClass(jenv, "java/lang/IllegalStateException"), "the handle is closed");
        return $null;
    }
}
%typemap(javabody) struct handle %{
  private transient long swigCPtr;
  protected transient boolean swigCMemOwn;

  protected $javaclassname(long cPtr, boolean cMemoryOwn) {
    swigCMemOwn = cMemoryOwn;
    swigCPtr = cPtr;
  }

  /** NULL for null; one that is closed is an error. */
  protected static long getCPtr($javaclassname obj) {
    if (obj == null) return 0;
    if (obj.swigCPtr == 0) throw new IllegalStateException("$javaclassname is closed");
    return obj.swigCPtr;
  }
%}
%typemap(javacode) struct handle %{
  private static <T> T keep(String name, T one) { return one; }

  /** Ends the handle; nobody may be using it. Twice is harmless. */
  @Override
  public void close() {
    delete();
    letGo();
  }
%}
%enddef
MOE_JAVA_HANDLE(moe_runtime)
MOE_JAVA_HANDLE(moe_checkpoint)
MOE_JAVA_HANDLE(moe_plan)
MOE_JAVA_HANDLE(moe_weights)
MOE_JAVA_HANDLE(moe_workspace)

// A tensor of a checkpoint lies in its mapping.
%typemap(javaout) moe_tensor *moe_checkpoint::tensor_of_index {
    Tensor made = new Tensor($jnicall, $owner);
    made.hold("checkpoint", this);
    return made;
  }

// Weights borrow from the tensors they are made of, or lie in memory that they were given.
%typemap(javaout) moe_weights *moe_weights::of_tensors {
    Weights made = new Weights($jnicall, $owner);
    if (desc.getOwnership() != Moe.MOE_OWN_COPY) made.holdAllOf("desc", desc);
    return made;
  }
%typemap(javaout) moe_weights *moe_weights::of_checkpoint {
    Weights made = new Weights($jnicall, $owner);
    if (options != null && options.getOwnership() != Moe.MOE_OWN_COPY) made.holdAllOf("options", options);
    return made;
  }
// They read an updated tensor where it lies, until the next update of the same.
%typemap(javaout) moe_status moe_weights_update {
    $jnicall;
    MemoryReport report = new MemoryReport();
    weightsMemory(weights, report);
    if (report.getBorrowedBytes() > 0) weights.holdAllOf(tensor.getRole() + " of " + tensor.getExpert(), tensor);
  }

// A workspace lies in memory that it was given.
%typemap(javaconstruct) struct moe_workspace {
    this($imcall, true);
    if (desc != null) holdAllOf("desc", desc);
  }

// --- the library -------------------------------------------------------------------------------------------------

%pragma(java) jniclasscode=%{
  static {
    String path = System.getenv("MOE_JNI");
    if (path != null) System.load(path);
    else System.loadLibrary("moejni");
    String wrong = moe_swig_gate();
    if (wrong != null) throw new UnsatisfiedLinkError(wrong);
  }
%}

// The bytes of a tensor where they lie: of a checkpoint they are valid until that is closed, which is not by the collector while
// the buffer is there.
%{
typedef struct moe_swig_bytes { void *address; uint64_t size; } moe_swig_bytes;
%}
%typemap(jni) moe_swig_bytes "jobject"
%typemap(jtype) moe_swig_bytes "java.nio.ByteBuffer"
%typemap(jstype) moe_swig_bytes "java.nio.ByteBuffer"
%typemap(javaout) moe_swig_bytes "{ return Moe.in(this, $jnicall); }"
%typemap(out) moe_swig_bytes {
    $result = $1.address ? (*jenv)->NewDirectByteBuffer(jenv, $1.address, (jlong)$1.size) : NULL;
}
%extend moe_tensor {
    moe_swig_bytes mapped(void) {
        moe_swig_bytes found = {NULL, 0};
        if ($self->space == MOE_SPACE_HOST) found.address = (void *)$self->data;
        if (found.address) found.size = $self->data_bytes;
        return found;
    }
}
