package moe

import (
	"math"
	"reflect"
)

// LayerDesc and Format have the fields of their C structs in the same order, and there every field is one 32-bit word behind
// struct_size. A test compares the names and the number with the header.

// putWords fills a struct, struct_size too.
func putWords(from any, words []uint32) {
	value := reflect.ValueOf(from).Elem()
	words[0] = uint32(4 * (1 + value.NumField()))
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

func getWords(words []uint32, to any) {
	value := reflect.ValueOf(to).Elem()
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
