package moe

import (
	"math"
	"reflect"
	"unsafe"
)

// LayerDesc and Format have the fields of their C structs in the same order, and there every field is one 32-bit word behind
// struct_size. A test compares the names and the number with the header.

func putWords(from any, to unsafe.Pointer) {
	value := reflect.ValueOf(from).Elem()
	words := unsafe.Slice((*uint32)(to), 1+value.NumField())
	words[0] = uint32(4 * len(words))
	for i := 0; i < value.NumField(); i++ {
		switch field := value.Field(i); field.Kind() {
		case reflect.Bool:
			if field.Bool() {
				words[1+i] = 1
			}
		case reflect.Float32:
			words[1+i] = math.Float32bits(float32(field.Float()))
		default:
			words[1+i] = uint32(field.Int())
		}
	}
}

func getWords(from unsafe.Pointer, to any) {
	value := reflect.ValueOf(to).Elem()
	words := unsafe.Slice((*uint32)(from), 1+value.NumField())
	for i := 0; i < value.NumField(); i++ {
		switch field := value.Field(i); field.Kind() {
		case reflect.Bool:
			field.SetBool(words[1+i] != 0)
		case reflect.Float32:
			field.SetFloat(float64(math.Float32frombits(words[1+i])))
		default:
			field.SetInt(int64(int32(words[1+i])))
		}
	}
}
