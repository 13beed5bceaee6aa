// Lua: an error is a table with status, name and message that says itself in words, memory is a moe.Buffer, handles end with the
// garbage or by moe.close, integers are integers.
%{
#include <stdint.h>
#include <stdio.h>

static int moe_swig_error_text(lua_State *L) {
    lua_getfield(L, 1, "name");
    lua_getfield(L, 1, "status");
    lua_getfield(L, 1, "message");
    lua_pushfstring(L, "%s (%d): %s", lua_tostring(L, -3), (int)lua_tointeger(L, -2), lua_tostring(L, -1));
    return 1;
}

/* Leaves the error on the stack. */
static void moe_swig_push_error(lua_State *L, moe_status status) {
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, status);
    lua_setfield(L, -2, "status");
    lua_pushstring(L, moe_status_name(status));
    lua_setfield(L, -2, "name");
    lua_pushstring(L, moe_swig_message());
    lua_setfield(L, -2, "message");
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, moe_swig_error_text);
    lua_setfield(L, -2, "__tostring");
    lua_setmetatable(L, -2);
}

/* Pushes what objects keep: for each a table, by weak keys. */
static void moe_swig_push_kept(lua_State *L) {
    static const char place = 0;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &place) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_newtable(L);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &place);
}

/* What object has been given under a name lives until another is given, or as long as the object. */
static void moe_swig_keep(lua_State *L, int object, int given, const char *name) {
    object = lua_absindex(L, object);
    given = lua_absindex(L, given);
    moe_swig_push_kept(L);
    lua_pushvalue(L, object);
    if (lua_rawget(L, -2) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, object);
        lua_pushvalue(L, -2);
        lua_rawset(L, -4);
    }
    if (name) lua_pushstring(L, name);
    else lua_pushvalue(L, given);
    lua_pushvalue(L, given);
    lua_rawset(L, -3);
    lua_pop(L, 2);
}

/* No handle refers to a plan. */
static int moe_swig_is_plan(lua_State *L, int index) {
    swig_lua_userdata *given = lua_isuserdata(L, index) ? (swig_lua_userdata *)lua_touserdata(L, index) : NULL;
    return given && given->type && strstr(given->type->str, "moe_plan *") != NULL;
}

/* Puts what object keeps, and what that keeps in turn, into the table all. */
static void moe_swig_gather(lua_State *L, int kept, int object, int all) {
    luaL_checkstack(L, 6, "what a struct keeps");
    lua_pushvalue(L, object);
    if (lua_rawget(L, kept) == LUA_TTABLE) {
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
            if (moe_swig_is_plan(L, -1)) continue;
            lua_pushvalue(L, -1);
            if (lua_rawget(L, all) == LUA_TNIL) {
                lua_pushvalue(L, -2);
                lua_pushboolean(L, 1);
                lua_rawset(L, all);
                moe_swig_gather(L, kept, lua_absindex(L, -2), all);
            }
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

/* What a handle goes on using of a struct is what the struct keeps now: it may be given other things later. */
static void moe_swig_keep_all(lua_State *L, int handle, int desc, const char *name) {
    handle = lua_absindex(L, handle);
    desc = lua_absindex(L, desc);
    lua_newtable(L);
    moe_swig_push_kept(L);
    moe_swig_gather(L, lua_absindex(L, -1), desc, lua_absindex(L, -2));
    lua_pop(L, 1);
    moe_swig_keep(L, handle, -1, name);
    lua_pop(L, 1);
}

/* Weights that borrow read an updated tensor where it lies, until the next update of the same. */
static void moe_swig_keep_update(lua_State *L, const moe_weights *weights, const moe_tensor *tensor) {
    moe_memory_report report = {sizeof report};
    char name[64];
    if (moe_weights_memory(weights, &report) != MOE_OK || report.borrowed_bytes == 0) return;
    snprintf(name, sizeof name, "%d of %d", (int)tensor->role, (int)tensor->expert);
    moe_swig_keep_all(L, 1, 2, name);
}

static int moe_swig_is_handle(const char *type) {
    return strstr(type, "moe_runtime *") || strstr(type, "moe_checkpoint *") || strstr(type, "moe_plan *") ||
           strstr(type, "moe_weights *") || strstr(type, "moe_workspace *");
}

/* The same for what a struct has been given, by a field or, without a name, a method: arguments of other calls are not kept. */
static void moe_swig_keep_in_struct(lua_State *L, int given, const char *name) {
    swig_lua_userdata *object = (swig_lua_userdata *)lua_touserdata(L, 1);
    if (!object || !object->type || moe_swig_is_handle(object->type->str)) return;
    if (name && !strstr(name, "_set")) return;
    if (lua_isuserdata(L, given) || (name && lua_isnil(L, given))) moe_swig_keep(L, 1, given, name);
}
%}

%exception {
    moe_swig_status = MOE_OK;
    $action
    if (moe_swig_status != MOE_OK) {
        moe_swig_push_error(L, moe_swig_status);
        SWIG_fail;
    }
}

// A status that comes back is nothing, or the error.
%typemap(out) moe_status {
    if ($1 != MOE_OK) {
        moe_swig_push_error(L, $1);
        SWIG_fail;
    }
}

// --- numbers -----------------------------------------------------------------------------------------------------

%define MOE_INTEGER(type)
%typemap(in, checkfn="lua_isinteger") type { $1 = ($1_ltype)lua_tointeger(L, $input); }
%typemap(out) type { lua_pushinteger(L, (lua_Integer)$1); SWIG_arg++; }
%enddef
MOE_INTEGER(int64_t)
MOE_INTEGER(uint64_t)
MOE_INTEGER(int32_t)
MOE_INTEGER(uint32_t)
%typemap(in, checkfn="lua_isinteger") enum SWIGTYPE { $1 = ($1_ltype)lua_tointeger(L, $input); }
%typemap(out) enum SWIGTYPE { lua_pushinteger(L, (lua_Integer)$1); SWIG_arg++; }
%typemap(in, checkfn="lua_isinteger") moe_status status { $1 = ($1_ltype)lua_tointeger(L, $input); }

// --- memory ------------------------------------------------------------------------------------------------------

%{
typedef struct moe_swig_buffer {
    moe_type type;
    int64_t count;
    void *data;   /* on 64 bytes, as memory for weights and workspaces must be */
    void *memory; /* that it lies in */
} moe_swig_buffer;

static int64_t moe_swig_element(moe_type type) {
    switch (type) {
        case MOE_TYPE_F64: case MOE_TYPE_I64: return 8;
        case MOE_TYPE_F32: case MOE_TYPE_I32: return 4;
        case MOE_TYPE_F16: case MOE_TYPE_BF16: return 2;
        default: return 1;
    }
}

static int moe_swig_is_inside(const moe_swig_buffer *buffer, int64_t index) {
    if (index >= 1 && index <= buffer->count) return 1;
    moe_swig_fail(MOE_ERROR_INVALID_ARGUMENT, "index: is not in the buffer");
    return 0;
}
%}

%typemap(in, checkfn="lua_isstring") (const char *STRING, size_t LENGTH) { $1 = (char *)lua_tolstring(L, $input, &$2); }

// Elements are numbered from 1, as everywhere in Lua. 16-bit floats are their bits.
%rename(Buffer) moe_swig_buffer;
%immutable moe_swig_buffer::type;
%immutable moe_swig_buffer::count;
typedef struct moe_swig_buffer {
    moe_type type;
    int64_t count;
} moe_swig_buffer;
%extend moe_swig_buffer {
    moe_swig_buffer(moe_type type, int64_t count) {
        moe_swig_buffer *made = (moe_swig_buffer *)calloc(1, sizeof *made);
        /* calloc: a large buffer takes no memory before it is used. */
        if (made && count >= 0) made->memory = calloc((size_t)count + 64, (size_t)moe_swig_element(type));
        if (!made || !made->memory) {
            free(made);
            moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory, or count is negative");
            return NULL;
        }
        made->data = (void *)(((uintptr_t)made->memory + 63) / 64 * 64);
        made->type = type;
        made->count = count;
        return made;
    }
    ~moe_swig_buffer() {
        if ($self) free($self->memory);
        free($self);
    }
    int64_t bytes(void) { return $self->count * moe_swig_element($self->type); }
    double get(int64_t index) {
        if (!moe_swig_is_inside($self, index)) return 0;
        switch ($self->type) {
            case MOE_TYPE_F64: return ((double *)$self->data)[index - 1];
            case MOE_TYPE_I64: return (double)((int64_t *)$self->data)[index - 1];
            case MOE_TYPE_F32: return ((float *)$self->data)[index - 1];
            case MOE_TYPE_I32: return ((int32_t *)$self->data)[index - 1];
            case MOE_TYPE_F16: case MOE_TYPE_BF16: return ((uint16_t *)$self->data)[index - 1];
            default: return ((uint8_t *)$self->data)[index - 1];
        }
    }
    void set(int64_t index, double value) {
        if (!moe_swig_is_inside($self, index)) return;
        switch ($self->type) {
            case MOE_TYPE_F64: ((double *)$self->data)[index - 1] = value; break;
            case MOE_TYPE_I64: ((int64_t *)$self->data)[index - 1] = (int64_t)value; break;
            case MOE_TYPE_F32: ((float *)$self->data)[index - 1] = (float)value; break;
            case MOE_TYPE_I32: ((int32_t *)$self->data)[index - 1] = (int32_t)value; break;
            case MOE_TYPE_F16: case MOE_TYPE_BF16: ((uint16_t *)$self->data)[index - 1] = (uint16_t)value; break;
            default: ((uint8_t *)$self->data)[index - 1] = (uint8_t)value;
        }
    }
    // The bytes of a string, as string.pack makes them; as many as there are.
    void fill(const char *STRING, size_t LENGTH) {
        if ((int64_t)LENGTH == $self->count * moe_swig_element($self->type)) memcpy($self->data, STRING, LENGTH);
        else moe_swig_fail(MOE_ERROR_INVALID_ARGUMENT, "the string is not as long as the buffer");
    }
}

// nil is NULL; a struct keeps the buffer it is given. What a struct points to is not read back.
%define MOE_MEMORY(type)
%typemap(in, checkfn="moe_swig_is_memory") type {
    moe_swig_buffer *buffer = NULL;
    SWIG_ConvertPtr(L, $input, (void **)&buffer, $descriptor(moe_swig_buffer *), 0);
    $1 = buffer ? ($1_ltype)buffer->data : NULL;
    moe_swig_keep_in_struct(L, $input, "$symname");
}
%typemap(out) type { lua_pushnil(L); SWIG_arg++; }
%enddef
%{
static int moe_swig_is_memory(lua_State *L, int index) {
    swig_lua_userdata *given = (swig_lua_userdata *)lua_touserdata(L, index);
    if (lua_isnil(L, index)) return 1;
    return lua_isuserdata(L, index) && given->type && strstr(given->type->name, "moe_swig_buffer") != NULL;
}
%}
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
%typemap(in, checkfn="lua_isinteger") void *stream { $1 = (void *)(intptr_t)lua_tointeger(L, $input); }
%typemap(out) void *stream { lua_pushinteger(L, (lua_Integer)(intptr_t)$1); SWIG_arg++; }

// --- what a struct points to -------------------------------------------------------------------------------------

// What is read back from a struct lives no longer than that.
%define MOE_READ_BACK(type, name)
%typemap(out) const type *name {
    SWIG_NewPointerObj(L, $1, $1_descriptor, $owner);
    SWIG_arg++;
    if ($1) moe_swig_keep(L, -1, 1, "struct");
}
%enddef
MOE_READ_BACK(moe_checkpoint, checkpoint)
MOE_READ_BACK(moe_plan, plan)

%define MOE_KEPT(type, name)
%typemap(in, checkfn="SWIG_isptrtype") const type *name {
    if (!SWIG_IsOK(SWIG_ConvertPtr(L, $input, (void **)&$1, $descriptor(type *), 0)))
        SWIG_fail_ptr("$symname", $argnum, $descriptor(type *));
    moe_swig_keep_in_struct(L, $input, "$symname");
}
MOE_READ_BACK(type, name)
%enddef
MOE_KEPT(moe_layer_desc, layer)
MOE_KEPT(moe_slice, slice)
MOE_KEPT(moe_format, format)
// There are several of these: each is kept for itself.
%typemap(in, checkfn="SWIG_isptrtype") const moe_format *of_role, const moe_tensor *one_more {
    if (!SWIG_IsOK(SWIG_ConvertPtr(L, $input, (void **)&$1, $1_descriptor, 0)))
        SWIG_fail_ptr("$symname", $argnum, $1_descriptor);
    moe_swig_keep_in_struct(L, $input, NULL);
}

// A tensor of a checkpoint lies in its mapping.
%typemap(out) moe_tensor *tensor_of_index, moe_tensor *moe_checkpoint::tensor_of_index {
    SWIG_NewPointerObj(L, $1, $1_descriptor, $owner);
    SWIG_arg++;
    moe_swig_keep(L, -1, 1, "checkpoint");
}

// Weights borrow from the tensors they are made of, or lie in memory that they were given.
%typemap(out) moe_weights *of_tensors, moe_weights *moe_weights_of_tensors, moe_weights *moe_weights::of_tensors {
    SWIG_NewPointerObj(L, $1, $1_descriptor, $owner);
    SWIG_arg++;
    if (arg2 && arg2->ownership != MOE_OWN_COPY) moe_swig_keep_all(L, -1, 2, "desc");
}
%typemap(out) moe_weights *of_checkpoint, moe_weights *moe_weights_of_checkpoint, moe_weights *moe_weights::of_checkpoint {
    SWIG_NewPointerObj(L, $1, $1_descriptor, $owner);
    SWIG_arg++;
    if (arg4 && arg4->ownership != MOE_OWN_COPY) moe_swig_keep_all(L, -1, 4, "options");
}
%exception moe_weights_update {
    $action
    if (result == MOE_OK) moe_swig_keep_update(L, arg1, arg2);
}

// A workspace lies in memory that it was given.
%typemap(out) struct moe_workspace *moe_workspace {
    SWIG_NewPointerObj(L, $1, $1_descriptor, $owner);
    SWIG_arg++;
    if (arg2) moe_swig_keep_all(L, -1, 2, "desc");
}

// --- handles -----------------------------------------------------------------------------------------------------

// nil is NULL; a handle that is closed is an error.
%define MOE_LUA_HANDLE(handle)
%typemap(in, checkfn="SWIG_isptrtype") handle *, const handle *, struct handle *, const struct handle * {
    if (!SWIG_IsOK(SWIG_ConvertPtr(L, $input, (void **)&$1, $descriptor(struct handle *), 0)))
        SWIG_fail_ptr("$symname", $argnum, $descriptor(struct handle *));
    if (!$1 && lua_isuserdata(L, $input)) {
        moe_swig_fail(MOE_ERROR_INVALID_ARGUMENT, "the handle is closed");
        moe_swig_push_error(L, MOE_ERROR_INVALID_ARGUMENT);
        SWIG_fail;
    }
    moe_swig_keep_in_struct(L, $input, "$symname");
}
%enddef
MOE_LUA_HANDLE(moe_runtime)
MOE_LUA_HANDLE(moe_checkpoint)
MOE_LUA_HANDLE(moe_plan)
MOE_LUA_HANDLE(moe_weights)
MOE_LUA_HANDLE(moe_workspace)

%{
/* moe.close(handle): ends it now. Twice is harmless. */
static int moe_swig_close(lua_State *L) {
    swig_lua_userdata *given = (swig_lua_userdata *)lua_touserdata(L, 1);
    const char *type = given && given->type ? given->type->name : "";
    void *handle = given ? given->ptr : NULL;
    if (!handle) return lua_isuserdata(L, 1) ? 0 : luaL_error(L, "moe.close: no handle");
    if (!given->own) return luaL_error(L, "moe.close: the handle belongs to another");
    if (strstr(type, "moe_runtime")) moe_runtime_destroy((moe_runtime *)handle);
    else if (strstr(type, "moe_checkpoint")) moe_checkpoint_destroy((moe_checkpoint *)handle);
    else if (strstr(type, "moe_plan")) moe_plan_destroy((moe_plan *)handle);
    else if (strstr(type, "moe_weights")) moe_weights_destroy((moe_weights *)handle);
    else if (strstr(type, "moe_workspace")) moe_workspace_destroy((moe_workspace *)handle);
    else return luaL_error(L, "moe.close: no handle");
    given->ptr = NULL;
    given->own = 0;
    return 0;
}
%}
%native(close) int moe_swig_close(lua_State *L);

%init %{
    {
        char *wrong = moe_swig_gate();
        if (wrong) {
            lua_pushstring(L, wrong);
            free(wrong);
            lua_error(L);
        }
    }
%}

%luacode {
  -- A buffer of a table of numbers: moe.buffer_of(moe.MOE_TYPE_F32, {1, 2, 3}).
  function moe.buffer_of(type, values)
    local made = moe.Buffer(type, #values)
    for i, value in ipairs(values) do made:set(i, value) end
    return made
  end

  -- A table of the numbers of a buffer.
  function moe.table_of(buffer)
    local made = {}
    for i = 1, buffer.count do made[i] = buffer:get(i) end
    return made
  end
}
