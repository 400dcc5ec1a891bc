package gateway

import (
	"net/http"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// answerProduced tells what became of each record. The status is 200 for all, 207 for some; when none is
// stored it is that of the problem, see worst.
func (s *Server) answerProduced(ctx *fasthttp.RequestCtx, k *call) error {
	resp := &ctx.Response
	if k.a.Acks == topic.AcksNone {
		s.metrics.records.WithLabelValues("accepted").Add(float64(len(k.a.Records)))
		k.out = append(k.out, `{"topic":"`...)
		k.out = append(k.out, k.a.Topic...)
		k.out = append(k.out, `","accepted":`...)
		k.out = strconv.AppendInt(k.out, int64(len(k.a.Records)), 10)
		k.out = append(k.out, '}', lineEnd)
		resp.SetStatusCode(http.StatusAccepted)
		resp.Header.SetContentType(typeJSON)
		resp.SetBody(k.out)
		return nil
	}
	failed := 0
	for i := range k.a.Results {
		if k.a.Results[i].Err != nil {
			failed++
		}
	}
	stored := len(k.a.Results) - failed
	s.metrics.stored(stored, failed)
	if stored == 0 {
		p := s.worst(ctx, k.a.Results)
		s.answerProblem(ctx, &p, appendResults(k.out[:0], k.a.Results))
		return nil
	}
	k.out = append(k.out, `{"topic":"`...)
	k.out = append(k.out, k.a.Topic...) // a name needs no escapes
	k.out = append(k.out, `","stored":`...)
	k.out = strconv.AppendInt(k.out, int64(stored), 10)
	k.out = append(k.out, `,"failed":`...)
	k.out = strconv.AppendInt(k.out, int64(failed), 10)
	k.out = append(k.out, `,"results":`...)
	k.out = appendResults(k.out, k.a.Results)
	k.out = append(k.out, '}', lineEnd)
	if failed > 0 {
		resp.SetStatusCode(http.StatusMultiStatus)
		p := s.worst(ctx, k.a.Results) // logs what has to be
		if p.RetryAfter > 0 {
			resp.Header.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(p.RetryAfter))
		}
	}
	resp.Header.SetContentType(typeJSON)
	resp.SetBody(k.out)
	return nil
}

// worst is the problem of a request of which records failed: what is unknown comes before what was
// refused, for a client that takes an unknown outcome for a refusal would write twice; then the node's
// own failures, then the first one.
func (s *Server) worst(ctx *fasthttp.RequestCtx, results []topic.Stored) problem.Problem {
	rank := func(kind fault.Kind) int {
		switch status := problem.StatusOf(kind); {
		case kind.Unknown():
			return 3
		case status == http.StatusInternalServerError:
			return 2
		case status >= http.StatusInternalServerError:
			return 1
		default:
			return 0
		}
	}
	var worst error
	for i := range results {
		if err := results[i].Err; err != nil && (worst == nil || rank(fault.KindOf(err)) > rank(fault.KindOf(worst))) {
			worst = err
		}
	}
	p := problem.Of(worst)
	s.logProblem(ctx, &p, worst)
	return p
}

// appendResults appends what became of each record as a JSON array.
func appendResults(dst []byte, results []topic.Stored) []byte {
	dst = append(dst, '[')
	for i := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		dst = appendStored(dst, &results[i])
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendStored appends the members of one result.
func appendStored(dst []byte, r *topic.Stored) []byte {
	if r.Err != nil {
		p := problem.Of(r.Err)
		dst = append(dst, `"status":`...)
		dst = strconv.AppendInt(dst, int64(p.Status), 10)
		if r.Partition != topic.AnyPartition {
			dst = append(dst, `,"partition":`...)
			dst = strconv.AppendInt(dst, int64(r.Partition), 10)
		}
		dst = append(dst, `,"error":`...)
		return p.AppendShort(dst)
	}
	dst = append(dst, `"status":200,"partition":`...)
	dst = strconv.AppendInt(dst, int64(r.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(r.Offset), 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, int64(r.Timestamp), 10)
	if r.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	return dst
}
