// Package client is the command line's side of the public HTTP API: a small client, and the commands
// that use it.
//
//	c, err := client.New("http://127.0.0.1:8080", 30*time.Second)
//	var topic client.Topic
//	err = c.Call(ctx, http.MethodGet, "/v1/topics/orders", nil, &topic)
//
// It knows a node only by openapi.yaml and uses nothing of the rooms behind it, so what a command can
// do, anybody can do with curl. Every request has a bound on its time, or on the time without progress
// where a body is streamed. An error that the node answered is a *[Problem], which prints as its
// sentence.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Client asks one node. Make one with [New]; it is safe for concurrent use.
type Client struct {
	base    string
	timeout time.Duration
	key     string // Idempotency-Key of its requests; empty: none
	http    *http.Client
}

// New makes a client for the node at an address such as http://127.0.0.1:8080; the scheme may be left
// out. timeout bounds every request beyond the wait that it asks for.
func New(server string, timeout time.Duration) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return nil, fmt.Errorf("the server %q must be an address such as http://127.0.0.1:8080", server)
	}
	if timeout <= 0 {
		return nil, fmt.Errorf("the timeout %v must be more than 0", timeout)
	}
	return &Client{
		base:    u.Scheme + "://" + u.Host,
		timeout: timeout,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: min(timeout, 10*time.Second)}).DialContext,
				TLSHandshakeTimeout: min(timeout, 10*time.Second),
				MaxIdleConnsPerHost: 256,
				IdleConnTimeout:     30 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Problem is an error that a node answered, as of RFC 9457.
type Problem struct {
	Status    int
	Code      string
	Title     string
	Detail    string
	Retryable bool
	Errors    []FieldError
}

// FieldError is one mistake, and where it is.
type FieldError struct{ Field, Message string }

// label is the field for a text that does not name it yet.
func (e FieldError) label(text string) string {
	if e.Field == "" || strings.Contains(text, e.Field) {
		return ""
	}
	return e.Field + ": "
}

// Error is the sentence for a person, with the fields that are wrong.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if text == "" {
		text = fmt.Sprintf("the node answered with status %d", p.Status)
	}
	var b strings.Builder
	b.WriteString(text)
	if len(p.Errors) == 1 && p.Errors[0].Message != "" && strings.HasSuffix(text, p.Errors[0].Message) {
		return text[:len(text)-len(p.Errors[0].Message)] + p.Errors[0].label(text) + p.Errors[0].Message
	}
	for _, e := range p.Errors {
		line := strings.TrimSpace(e.Field + " " + e.Message)
		if !strings.Contains(text, line) {
			b.WriteString("\n  " + line)
		}
	}
	return b.String()
}

// Call makes one request. A body that is not nil is sent as JSON; out, when not nil, gets the answer.
func (c *Client) Call(ctx context.Context, method, path string, body, out any) error {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		payload = bytes.NewReader(encoded)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout(c.timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // what is left of it does not matter
	return decode(resp, out)
}

// do sends a request and says in words when nobody answers.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "weir-cli")
	resp, err := c.http.Do(req)
	if err == nil {
		return resp, nil
	}
	if cause := context.Cause(req.Context()); cause != nil {
		err = cause // the timeout, or the user
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial"
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, &UnreachableError{c.base, "connection refused; start a node with `weir serve`, or name one with --server", unsent}
	}
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	return nil, &UnreachableError{c.base, err.Error(), unsent}
}

// UnreachableError says that a request got no answer. When it changes something, nobody knows whether it did, unless
// it was never sent.
type UnreachableError struct {
	Server, Reason string
	Unsent         bool // there was no connection
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from %s: %s", e.Server, e.Reason)
}

func errTimeout(after time.Duration) error { return fmt.Errorf("timed out after %v", after) }

// maxAnswer bounds what is read of an answer that is taken as a whole: a page may have 64 MiB of
// values and some more of JSON around them.
const maxAnswer = 256 << 20

// decode reads an answer: a value, or a problem.
func decode(resp *http.Response, out any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		if cause := context.Cause(resp.Request.Context()); cause != nil {
			err = cause
		}
		return &UnreachableError{Server: resp.Request.URL.Host, Reason: err.Error()}
	}
	if resp.StatusCode >= 300 {
		return problemOf(resp, body)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the answer of %s is not what was expected: %w", resp.Request.URL.Host, err)
	}
	return nil
}

func problemOf(resp *http.Response, body []byte) error {
	p := &Problem{}
	if json.Unmarshal(body, p) != nil || p.Detail == "" && p.Title == "" {
		text := strings.TrimSpace(string(body[:min(len(body), 200)]))
		p = &Problem{Detail: fmt.Sprintf("%s answered with status %s: %s", resp.Request.URL.Host, resp.Status, text)}
	}
	p.Status = resp.StatusCode
	return p
}

// retryable says that the same request may succeed later.
func retryable(err error) bool {
	var p *Problem
	if errors.As(err, &p) {
		return p.Retryable || p.Status >= 502 && p.Status <= 504
	}
	var unreachable *UnreachableError
	return errors.As(err, &unreachable)
}

// topicPath is the address of a topic, or of what is below it.
func topicPath(topic string, below ...string) string {
	parts := append([]string{"/v1/topics", url.PathEscape(topic)}, below...)
	return strings.Join(parts, "/")
}
