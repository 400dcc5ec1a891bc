// Package wire writes and reads the values that weir's own formats are made of: bytes, numbers, texts,
// ids and a checksum at the end.
//
// One value has one form. A [Reader] refuses every other form, and bytes that are left over, so that
// what was read is written again as the same bytes. The formats themselves, with what their values
// mean, stand in the rooms that own them.
//
// A number is a varint, seven bits a byte and the lowest first, in its shortest form; one that may be
// negative is in zigzag order first. A text is a number of bytes and the bytes.
package wire

import "errors"

// These are the mistakes that bytes may have.
var (
	// ErrShort says that a value, or a number of things, is cut off.
	ErrShort = errors.New("the bytes end too early")
	// ErrLong says that the last value is not the end.
	ErrLong = errors.New("there are bytes behind the end")
	// ErrForm says that a number is written longer than needed, or is none of those that may stand there.
	ErrForm = errors.New("a number is not in its shortest form, or not allowed there")
	// ErrOrder says that rows do not ascend.
	ErrOrder = errors.New("rows are out of order")
	// ErrChecksum says that the bytes are not those that were written.
	ErrChecksum = errors.New("the checksum is wrong")
)
