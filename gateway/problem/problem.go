// Package problem says what an error looks like to a caller: the one place that turns the kinds of
// internal/fault into HTTP statuses, codes, titles, WebSocket close codes and hints to try again.
//
//	p := problem.Of(err)
//	body := p.Append(nil, problem.Place{Instance: "/v1/topics/orders", RequestID: id})
//
// A problem document is that of RFC 9457, with a code for programs, a retryable flag and, where they
// help, the fields that are wrong or the bounds of the log. What is inside a node never shows in one: the
// text of an error that is the node's own fault stays in the node's log, under the request's id.
package problem

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// MediaType of a problem document.
const MediaType = "application/problem+json"

// Problem is an error as a caller sees it.
type Problem struct {
	Status    int    // of HTTP
	Code      string // for programs
	Title     string // the same for every problem of the code
	Detail    string // a sentence about this one
	Retryable bool   // the same request may succeed later as it stands

	RetryAfter int // seconds until a retry makes sense; 0: no hint

	Fields   []Field           // what is wrong where, for input that was read but is not allowed
	Range    *topic.RangeError // where the log is, for an offset that is not there
	Action   string            // what was asked for and refused, for Forbidden
	Resource string            // on what
}

// Field is one mistake in an input.
type Field struct {
	Name    string // as a path: records[2].value; empty: the input as a whole
	Message string // a sentence that goes on after the name
}

// Invalid is an error that lists mistakes by field. Wrap it in a fault to give it a kind.
type Invalid struct{ Fields []Field }

// Error prints the mistakes in one line.
func (e *Invalid) Error() string {
	var b strings.Builder
	for i, f := range e.Fields {
		if i > 0 {
			b.WriteString("; ")
		}
		if f.Name != "" {
			b.WriteString(f.Name)
			b.WriteByte(' ')
		}
		b.WriteString(f.Message)
	}
	return b.String()
}

// FieldError is a fault of kind Validation about one field.
func FieldError(op, name, format string, args ...any) error {
	return fault.New(op, fault.Validation, nil, &Invalid{Fields: []Field{{name, fmt.Sprintf(format, args...)}}})
}

// Denied is the cause of a fault of kind Forbidden that says what was refused.
type Denied struct {
	Action   string
	Resource string
	Why      string
}

// Error is the reason.
func (e *Denied) Error() string { return e.Why }

// row is what is the same for all problems of a kind.
type row struct {
	status int
	code   string // "": the kind's own
	title  string
	close  int // WebSocket close code when the kind ends a connection
}

// WebSocket close codes: with 40xx a client connects again, with 45xx it stops.
const (
	CloseShutdown        = 4001
	CloseTokenExpired    = 4002
	CloseWriteTimeout    = 4003
	CloseNoPong          = 4004
	CloseRateLimited     = 4006
	CloseBadFrame        = 4500
	CloseUnauthorized    = 4501
	CloseAuthTimeout     = 4502
	CloseForbidden       = 4503
	CloseConnectionLimit = 4504
	CloseFrameTooBig     = 4505
	CloseReplaced        = 4506
)

// closeInternal is RFC 6455's code for a server that met an unexpected condition.
const closeInternal = 1011

func rowOf(kind fault.Kind) row {
	switch kind {
	case fault.BadRequest:
		return row{http.StatusBadRequest, "", "Bad request", CloseBadFrame}
	case fault.InvalidJSON:
		return row{http.StatusBadRequest, "", "Invalid JSON", CloseBadFrame}
	case fault.InvalidCursor:
		return row{http.StatusBadRequest, "", "Invalid cursor", CloseBadFrame}
	case fault.Validation:
		return row{http.StatusUnprocessableEntity, "", "Validation failed", CloseBadFrame}
	case fault.Unauthorized:
		return row{http.StatusUnauthorized, "", "Not authenticated", CloseUnauthorized}
	case fault.Forbidden:
		return row{http.StatusForbidden, "", "Forbidden", CloseForbidden}
	case fault.NotFound:
		return row{http.StatusNotFound, "", "Not found", CloseBadFrame}
	case fault.NoTopic:
		return row{http.StatusNotFound, "", "Topic not found", CloseBadFrame}
	case fault.NoPartition:
		return row{http.StatusNotFound, "", "Partition not found", CloseBadFrame}
	case fault.NoGroup:
		return row{http.StatusNotFound, "", "Group not found", CloseBadFrame}
	case fault.NoMember:
		return row{http.StatusNotFound, "", "Member not found", CloseBadFrame}
	case fault.TopicExists:
		return row{http.StatusConflict, "", "Topic exists", CloseBadFrame}
	case fault.GroupNotEmpty:
		return row{http.StatusConflict, "", "Group not empty", CloseBadFrame}
	case fault.FencedMember:
		return row{http.StatusConflict, "", "Member fenced", CloseReplaced}
	case fault.StaleMember:
		return row{http.StatusConflict, "", "Stale member epoch", CloseBadFrame}
	case fault.Superseded:
		return row{http.StatusConflict, "", "Poll superseded", CloseReplaced}
	case fault.OffsetMismatch:
		return row{http.StatusPreconditionFailed, "", "The log has moved on", CloseBadFrame}
	case fault.OffsetRange:
		return row{http.StatusRequestedRangeNotSatisfiable, "", "Offset out of range", CloseBadFrame}
	case fault.RecordTooLarge:
		return row{http.StatusRequestEntityTooLarge, "", "Record too large", CloseFrameTooBig}
	case fault.RequestTooLarge:
		return row{http.StatusRequestEntityTooLarge, "", "Request too large", CloseFrameTooBig}
	case fault.UnsupportedType:
		return row{http.StatusUnsupportedMediaType, "", "Unsupported media type", CloseBadFrame}
	case fault.KeyReused:
		return row{http.StatusUnprocessableEntity, "", "Idempotency key reused", CloseBadFrame}
	case fault.Fenced:
		return row{http.StatusConflict, "", "Fenced", CloseReplaced}
	case fault.OutOfSequence:
		return row{http.StatusConflict, "", "Out of sequence", CloseBadFrame}
	case fault.QuotaExceeded:
		return row{http.StatusTooManyRequests, "", "Quota exceeded", CloseRateLimited}
	case fault.NotLeader:
		return row{http.StatusServiceUnavailable, "", "Not the leader", CloseShutdown}
	case fault.Loading:
		return row{http.StatusServiceUnavailable, "", "Coordinator is loading", CloseShutdown}
	case fault.NotReplicated:
		return row{http.StatusServiceUnavailable, "", "Not enough replicas", CloseShutdown}
	case fault.StorageFull:
		return row{http.StatusServiceUnavailable, "", "Storage is full", CloseShutdown}
	case fault.Overloaded:
		return row{http.StatusServiceUnavailable, "", "Overloaded", CloseRateLimited}
	case fault.Stopping, fault.Closed:
		// What its owner closed under a request was closed because the node stops.
		return row{http.StatusServiceUnavailable, fault.Stopping.String(), "Stopping", CloseShutdown}
	case fault.Timeout:
		return row{http.StatusGatewayTimeout, "", "Timeout", CloseShutdown}
	case fault.Limit:
		return row{http.StatusConflict, "", "Limit exceeded", CloseConnectionLimit}
	default: // Internal, Corrupt, and a kind that this table does not know
		return row{http.StatusInternalServerError, fault.Internal.String(), "Internal error", closeInternal}
	}
}

// Of says what err looks like to a caller.
func Of(err error) Problem {
	kind := fault.KindOf(err)
	r := rowOf(kind)
	p := Problem{Status: r.status, Code: r.code, Title: r.title, Retryable: kind.Retryable()}
	if p.Code == "" {
		p.Code = kind.String()
	}
	if kind == fault.Closed {
		p.Retryable = true
	}
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		p.RetryAfter = 1
	}
	p.Detail = detail(kind, err)
	if p.Status == http.StatusInternalServerError {
		return p
	}
	p.Fields = FieldsOf(err)
	if kind == fault.OffsetRange {
		errors.As(err, &p.Range)
	}
	var denied *Denied
	if kind == fault.Forbidden && errors.As(err, &denied) {
		p.Action, p.Resource = denied.Action, denied.Resource
	}
	return p
}

// FieldsOf finds the list of mistakes in an error, whoever made it: each with the path that it has in a
// request, where there is one. A topic's name is "topic", as in every path and frame.
func FieldsOf(err error) []Field {
	var invalid *Invalid
	if errors.As(err, &invalid) {
		return invalid.Fields
	}
	var records *recordjson.Errors
	if errors.As(err, &records) {
		fields := make([]Field, len(records.Fields))
		for i, f := range records.Fields {
			fields[i] = Field{Name: f.Field, Message: f.Message}
		}
		return fields
	}
	// Several mistakes that were joined, as those of settings are.
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var fields []Field
		for _, one := range joined.Unwrap() {
			fields = append(fields, fieldOf(one))
		}
		return fields
	}
	var name *topic.NameError
	if errors.As(err, &name) {
		return []Field{fieldOf(name)}
	}
	return nil
}

// fieldOf is one mistake.
func fieldOf(err error) Field {
	var name *topic.NameError
	if errors.As(err, &name) {
		return Field{Name: "topic", Message: name.Why}
	}
	var setting *topic.SettingError
	if errors.As(err, &setting) {
		return Field{Name: "settings." + setting.Name, Message: setting.Why}
	}
	return Field{Message: err.Error()}
}

// MethodNotAllowed is the problem of a path that does not take a method. allow lists those that it takes.
func MethodNotAllowed(method, allow string) Problem {
	return Problem{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Title: "Method not allowed",
		Detail: fmt.Sprintf("%q is not allowed here; allowed are: %s", method, allow),
	}
}

// HeadersTooLarge is the problem of a request line and headers of more than limit bytes.
func HeadersTooLarge(limit int) Problem {
	return Problem{
		Status: http.StatusRequestHeaderFieldsTooLarge, Code: "headers_too_large", Title: "Headers too large",
		Detail: fmt.Sprintf("the request line and the headers may have %d bytes together", limit),
	}
}

// RequestTimeout is the problem of a request that did not arrive in time.
func RequestTimeout(limit string) Problem {
	return Problem{
		Status: http.StatusRequestTimeout, Code: "request_timeout", Title: "Request timeout",
		Detail: "nothing, or too little, of the request arrived within " + limit, Retryable: true,
	}
}

// detail is the sentence for the caller. Of a foreign error, whose text is not ours, nothing is printed.
func detail(kind fault.Kind, err error) string {
	var ours *fault.Error
	known := errors.As(err, &ours)
	switch {
	case kind == fault.Internal || kind == fault.Corrupt:
		return "the node failed; its log has the reason under the id of this request"
	case kind == fault.Timeout && !known:
		return "the time was up; the outcome is unknown: it may or may not take effect"
	case kind == fault.Timeout:
		return fault.Sentence(err) + "; the outcome is unknown: it may or may not take effect"
	case !known:
		return "the node is stopping"
	case kind == fault.StorageFull && ofFile(err):
		return "the node's disk is full"
	default:
		return strings.ReplaceAll(fault.Sentence(err), "\n", "; ")
	}
}

// ofFile says that the operating system's own words are in an error: they name a file of the node's.
func ofFile(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	return errors.As(err, &path) || errors.As(err, &link)
}

// StatusOf is the HTTP status of a kind.
func StatusOf(kind fault.Kind) int { return rowOf(kind).status }

// CloseCode is the WebSocket close code for an error that ends a connection.
func CloseCode(err error) int { return rowOf(fault.KindOf(err)).close }

// Place is where a problem arose.
type Place struct {
	Instance  string // the path of the request
	RequestID string
	Results   []byte // JSON: what became of each record; nil: leave it out
}

// Append appends the whole document.
func (p *Problem) Append(dst []byte, at Place) []byte {
	dst = append(dst, `{"type":"urn:weir:error:`...)
	dst = append(dst, p.Code...)
	dst = append(dst, `","title":`...)
	dst = AppendString(dst, p.Title)
	dst = p.appendCommon(dst)
	if at.Instance != "" {
		dst = append(dst, `,"instance":`...)
		dst = AppendString(dst, at.Instance)
	}
	if at.RequestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = AppendString(dst, at.RequestID)
	}
	if at.Results != nil {
		dst = append(dst, `,"results":`...)
		dst = append(dst, at.Results...)
	}
	return append(dst, '}')
}

// AppendShort appends the problem as it stands inside another document: in the results of a produce
// call, in a frame, in a line of a stream.
func (p *Problem) AppendShort(dst []byte) []byte {
	dst = append(dst, `{"title":`...)
	dst = AppendString(dst, p.Title)
	dst = p.appendCommon(dst)
	return append(dst, '}')
}

func (p *Problem) appendCommon(dst []byte) []byte {
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(p.Status), 10)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, p.Code...)
	dst = append(dst, `","detail":`...)
	dst = AppendString(dst, p.Detail)
	dst = append(dst, `,"retryable":`...)
	dst = strconv.AppendBool(dst, p.Retryable)
	if p.Range != nil {
		dst = append(dst, `,"reason":"`...)
		dst = append(dst, p.Range.Reason...)
		dst = append(dst, `","log_start_offset":`...)
		dst = strconv.AppendInt(dst, int64(p.Range.Bounds.LogStart), 10)
		dst = append(dst, `,"high_watermark":`...)
		dst = strconv.AppendInt(dst, int64(p.Range.Bounds.HighWatermark), 10)
		dst = append(dst, `,"resume_offset":`...)
		dst = strconv.AppendInt(dst, int64(p.Range.ResumeAt), 10)
	}
	if p.Action != "" {
		dst = append(dst, `,"action":`...)
		dst = AppendString(dst, p.Action)
		dst = append(dst, `,"resource":`...)
		dst = AppendString(dst, p.Resource)
	}
	if len(p.Fields) > 0 {
		dst = append(dst, `,"errors":[`...)
		for i, f := range p.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '{')
			if f.Name != "" {
				dst = append(dst, `"field":`...)
				dst = AppendString(dst, f.Name)
				dst = append(dst, ',')
			}
			dst = append(dst, `"message":`...)
			dst = AppendString(dst, f.Message)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	return dst
}
