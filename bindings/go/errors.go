package moe

import (
	"errors"
	"fmt"
)

// Status is the number of an outcome, and an error itself: errors.Is(err, moe.ErrBusy). One of a newer library that has no
// name here keeps its number: var status moe.Status; errors.As(err, &status).
type Status int32

const (
	ErrInvalidArgument   Status = -1
	ErrOutOfMemory       Status = -2
	ErrUnsupported       Status = -3
	ErrNotBuilt          Status = -4
	ErrNoDevice          Status = -5
	ErrLayoutMismatch    Status = -6
	ErrWorkspaceTooSmall Status = -7
	ErrCancelled         Status = -8
	ErrForked            Status = -9
	ErrIO                Status = -10
	ErrCorruptFile       Status = -11
	ErrNotFound          Status = -12
	ErrABI               Status = -13
	ErrDevice            Status = -14
	ErrBusy              Status = -15
	ErrBufferTooSmall    Status = -16
	ErrInternal          Status = -17
)

// Name is "MOE_ERROR_BUSY" and the like, "MOE_ERROR_UNKNOWN" for a number that the library does not know.
func (s Status) Name() string {
	return text(func() *byte { return moe_status_name(moe_status(s)) })
}

func (s Status) Error() string { return fmt.Sprintf("%s (%d)", s.Name(), int32(s)) }

// Error is a call that failed. It is its Status to errors.Is and errors.As.
type Error struct {
	Status  Status
	Message string // the library's sentence: it names the field or the file, and the value
	Call    string // the function of moe.h
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Call, e.Status.Error(), e.Message)
}

func (e *Error) Unwrap() error { return e.Status }

// ErrClosed is a handle that is used after Close.
var ErrClosed = errors.New("moe: handle is closed")

// ArgumentError is an array that cannot be what it is given for; nothing was called.
type ArgumentError struct {
	Field   string
	Message string
}

func (e *ArgumentError) Error() string { return "moe: " + e.Field + ": " + e.Message }

// Unwrap makes it ErrInvalidArgument too.
func (e *ArgumentError) Unwrap() error { return ErrInvalidArgument }

// FaultError is a call of a Layer that left out slots or rows. Everything else was computed and is in the output.
type FaultError struct {
	Faults   Faults
	NSkipped int64 // slots or rows
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("moe: %d slots or rows were skipped, faults %#x", e.NSkipped, uint32(e.Faults))
}

// PanicError is a panic in a callback. Of a progress callback it is the error of the call, which was cancelled.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("moe: panic in a callback: %v\n%s", e.Value, e.Stack)
}

// Unwrap gives the value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
