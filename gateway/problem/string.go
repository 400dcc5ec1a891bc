package problem

import "github.com/weirlog/weir/gateway/recordjson"

// AppendString appends s as a JSON string, as everything that goes out is written. What is not UTF-8 in it becomes U+FFFD.
func AppendString(dst []byte, s string) []byte { return recordjson.AppendString(dst, s) }
