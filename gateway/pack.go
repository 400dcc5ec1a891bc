package gateway

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"
)

// packFrom is the smallest answer that is packed: below it the work costs more than the bytes.
const packFrom = 4 << 10

var (
	headerAcceptEncoding = []byte("Accept-Encoding")
	valueAcceptEncoding  = []byte("Accept-Encoding")

	gzipWriters = sync.Pool{New: func() any {
		w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		return w
	}}
	zstdWriters = sync.Pool{New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return w
	}}
)

// pack compresses an answer that is large enough, the way the client asked for.
func (s *Server) pack(ctx *fasthttp.RequestCtx) {
	resp := &ctx.Response
	page, ofRecords := resp.BodyStream().(*pageBody)
	if resp.IsBodyStream() && !ofRecords || ctx.Hijacked() {
		return
	}
	var plain []byte
	replace := resp.SetBodyRaw
	if ofRecords {
		plain = page.b
		replace = func(packed []byte) {
			page.become(packed)
			resp.Header.SetContentLength(len(packed))
		}
	} else {
		plain = resp.Body()
	}
	if len(plain) < packFrom || len(resp.Header.ContentEncoding()) > 0 {
		return
	}
	resp.Header.AddBytesKV(headerVary, valueAcceptEncoding)
	switch chooseCoding(ctx.Request.Header.PeekCanonical(headerAcceptEncoding)) {
	case "zstd":
		w := zstdWriters.Get().(*zstd.Encoder)
		packed := w.EncodeAll(plain, make([]byte, 0, len(plain)/3))
		zstdWriters.Put(w)
		resp.Header.SetContentEncoding("zstd")
		replace(packed)
	case "gzip":
		var packed bytes.Buffer
		packed.Grow(len(plain) / 3)
		w := gzipWriters.Get().(*gzip.Writer)
		w.Reset(&packed)
		_, err := w.Write(plain)
		if end := w.Close(); err == nil {
			err = end
		}
		gzipWriters.Put(w)
		if err != nil {
			return // a buffer in memory does not fail; if it did, plain is right too
		}
		resp.Header.SetContentEncoding("gzip")
		replace(packed.Bytes())
	}
}

// chooseCoding picks the best coding that an Accept-Encoding allows: "zstd", "gzip", or "" for none.
func chooseCoding(accept []byte) string {
	if len(accept) == 0 {
		return ""
	}
	best, weight, named := "", 0.0, map[string]bool{}
	rest := -1.0 // the weight of "*"
	for part := range strings.SplitSeq(string(accept), ",") {
		name, params, _ := strings.Cut(part, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		q := 1.0
		if v, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			var err error
			if q, err = strconv.ParseFloat(strings.TrimSpace(v), 64); err != nil {
				q = 0
			}
		}
		named[name] = true
		switch {
		case name == "*":
			rest = q
		case (name == "zstd" || name == "gzip") && (q > weight || q == weight && q > 0 && name == "zstd"):
			best, weight = name, q
		}
	}
	if best == "" && rest > 0 {
		for _, name := range []string{"zstd", "gzip"} {
			if !named[name] {
				return name
			}
		}
	}
	return best
}
