//go:build cgo

package moe

// #include "moego.h"
import "C"

import "unsafe"

func allocateC(bytes uintptr) unsafe.Pointer { return C.calloc(1, C.size_t(bytes)) }

func freeC(memory unsafe.Pointer) { C.free(memory) }

func runTask(task uintptr, index int32, taskData unsafe.Pointer) {
	C.moego_run_task(C.uintptr_t(task), C.int32_t(index), taskData)
}

func callbacks() callbackAddresses {
	found := C.moego_callbacks()
	return callbackAddresses{uintptr(found.log), uintptr(found.parallel_for), uintptr(found.allocate), uintptr(found.release),
		uintptr(found.progress)}
}

//export moegoLog
func moegoLog(level C.int32_t, message *C.char, handle C.uintptr_t) {
	logCallback(int32(level), (*byte)(unsafe.Pointer(message)), uintptr(handle))
}

//export moegoAllocate
func moegoAllocate(bytes, alignment C.uint64_t, space C.int32_t, stream unsafe.Pointer, handle C.uintptr_t) unsafe.Pointer {
	return allocateCallback(uint64(bytes), uint64(alignment), int32(space), stream, uintptr(handle))
}

//export moegoRelease
func moegoRelease(memory unsafe.Pointer, bytes, alignment C.uint64_t, space C.int32_t, stream unsafe.Pointer,
	handle C.uintptr_t) {
	releaseCallback(memory, uint64(bytes), uint64(alignment), int32(space), stream, uintptr(handle))
}

//export moegoParallelFor
func moegoParallelFor(nTasks C.int32_t, task C.uintptr_t, taskData unsafe.Pointer, handle C.uintptr_t) {
	parallelForCallback(int32(nTasks), uintptr(task), taskData, uintptr(handle))
}

//export moegoProgress
func moegoProgress(done, total C.uint64_t, handle C.uintptr_t) C.int32_t {
	return C.int32_t(progressCallback(uint64(done), uint64(total), uintptr(handle)))
}
