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

%define MOE_KEPT(type, name)
%typemap(javain) const type *name "$javaclassname.getCPtr(keep(\"name\", $javainput))"
%enddef
MOE_KEPT(moe_layer_desc, layer)
MOE_KEPT(moe_checkpoint, checkpoint)
MOE_KEPT(moe_plan, plan)
MOE_KEPT(moe_slice, slice)
MOE_KEPT(moe_format, format)
%typemap(javain) const moe_format *of_role "$javaclassname.getCPtr(keep(\"format\" + role, $javainput))"
%typemap(javain) const moe_tensor *one_more "$javaclassname.getCPtr(keep(\"tensor\" + kept.size(), $javainput))"

%typemap(javacode) SWIGTYPE %{
  private final java.util.HashMap<String, Object> kept = new java.util.HashMap<>();

  /** What the struct points to lives as long as it does. */
  private <T> T keep(String name, T one) {
    kept.put(name, one);
    return one;
  }
%}
%pragma(java) modulecode=%{
  /** A call needs its arguments for itself alone. */
  private static <T> T keep(String name, T one) { return one; }

  /** Direct memory for n floats. */
  public static java.nio.FloatBuffer floats(int n) { return bytes(4L * n).asFloatBuffer(); }

  /** Direct memory for n ints. */
  public static java.nio.IntBuffer ints(int n) { return bytes(4L * n).asIntBuffer(); }

  /** Direct memory for n longs. */
  public static java.nio.LongBuffer longs(int n) { return bytes(8L * n).asLongBuffer(); }

  /** Direct memory, zero, in the machine's order of bytes. */
  public static java.nio.ByteBuffer bytes(long n) {
    return java.nio.ByteBuffer.allocateDirect(Math.toIntExact(n)).order(java.nio.ByteOrder.nativeOrder());
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

  private Object borrowed;

  /** Ends the handle; nobody may be using it. Twice is harmless. */
  @Override
  public void close() { delete(); }
%}
%enddef
MOE_JAVA_HANDLE(moe_runtime)
MOE_JAVA_HANDLE(moe_checkpoint)
MOE_JAVA_HANDLE(moe_plan)
MOE_JAVA_HANDLE(moe_weights)
MOE_JAVA_HANDLE(moe_workspace)

// Weights may borrow from the tensors they are made of.
%typemap(javaout) moe_weights *moe_weights::of_tensors {
    Weights made = new Weights($jnicall, $owner);
    made.borrowed = desc;
    return made;
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

// The bytes of a tensor where they lie: of a checkpoint they are valid until that is closed.
%{
typedef struct moe_swig_bytes { void *address; uint64_t size; } moe_swig_bytes;
%}
%typemap(jni) moe_swig_bytes "jobject"
%typemap(jtype) moe_swig_bytes "java.nio.ByteBuffer"
%typemap(jstype) moe_swig_bytes "java.nio.ByteBuffer"
%typemap(javaout) moe_swig_bytes "{ return $jnicall; }"
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
