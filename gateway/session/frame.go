package session

import (
	"encoding/binary"
)

// The operations of WebSocket frames, as RFC 6455 numbers them, each in one frame.
const (
	frameText  = 0x81
	frameClose = 0x88
	framePing  = 0x89
	framePong  = 0x8a
)

// frameSpace is room for the head of a frame with less than 64 KiB.
const frameSpace = 4

// beginFrame makes room for a head. The payload follows, then endFrame.
func beginFrame(dst []byte) (out []byte, at int) {
	return append(dst, 0, 0, 0, 0), len(dst)
}

// endFrame writes the head of the frame that was begun at dst[at].
func endFrame(dst []byte, at int, op byte) []byte {
	n := len(dst) - at - frameSpace
	switch {
	case n < 126:
		copy(dst[at+2:], dst[at+frameSpace:])
		dst = dst[:len(dst)-2]
		dst[at], dst[at+1] = op, byte(n)
	case n < 1<<16:
		dst[at], dst[at+1] = op, 126
		binary.BigEndian.PutUint16(dst[at+2:], uint16(n))
	default:
		dst = append(dst, 0, 0, 0, 0, 0, 0)
		copy(dst[at+10:], dst[at+frameSpace:at+frameSpace+n])
		dst[at], dst[at+1] = op, 127
		binary.BigEndian.PutUint64(dst[at+2:], uint64(n))
	}
	return dst
}

// appendFrame appends a frame with a payload that is there already.
func appendFrame(dst []byte, op byte, payload []byte) []byte {
	dst, at := beginFrame(dst)
	return endFrame(append(dst, payload...), at, op)
}

// closeText is the longest reason that a close frame can give.
const closeText = 123

// appendClose appends a close frame.
func appendClose(dst []byte, code int, reason string) []byte {
	if len(reason) > closeText {
		reason = reason[:closeText] // reasons are ASCII
	}
	dst, at := beginFrame(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	return endFrame(append(dst, reason...), at, frameClose)
}
