// SWIG reads moe.h as it is. What Python needs besides: places for out handles, arrays, and structs that know their size.
%module moe
%{
#include <stdlib.h>
#include "moe/moe.h"
%}
%include <stdint.i>
%include <cpointer.i>
%include <carrays.i>

%define MOE_STRUCT(name)
%extend name {
    name() {
        name *self = (name *)calloc(1, sizeof(name));
        if (self) self->struct_size = sizeof(name);
        return self;
    }
    ~name() { free($self); }
}
%enddef
MOE_STRUCT(moe_layer_desc)
MOE_STRUCT(moe_format)
MOE_STRUCT(moe_tensor)
MOE_STRUCT(moe_plan_desc)
MOE_STRUCT(moe_weights_desc)
MOE_STRUCT(moe_workspace_desc)
MOE_STRUCT(moe_forward_args)

%include "moe/moe.h"

%pointer_functions(moe_plan *, plan_place)
%pointer_functions(moe_weights *, weights_place)
%pointer_functions(moe_workspace *, workspace_place)
%array_functions(float, floats)
%array_functions(int32_t, ints)
%array_functions(moe_format *, format_list)
%array_functions(moe_tensor *, tensor_list)
