package gateway

import "strconv"

// quote shortens what somebody sent, so that an error never echoes a whole header or body.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
