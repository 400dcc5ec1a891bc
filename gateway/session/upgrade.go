package session

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/fasthttp/websocket"
)

// Subprotocol is the name of the frames that the WebSocket speaks. Asking for it is optional.
const Subprotocol = "weir.v1.json"

// readBuffer is how much a WebSocket reads at a time. Every idle one holds such a buffer.
const readBuffer = 512

// WebSocket is a connection that asked to become one.
type WebSocket struct {
	Request http.Header // of the handshake
	Answer  http.Header // more headers for its answer; may be nil
	// Reader, when not nil, is a first subscription, under the name Sub. It begins at once.
	Reader *Reader
	Sub    string
}

// WebSocket serves a WebSocket on a connection that the HTTP server has given up. It returns at once; the
// connection and the reader are the hub's from now on.
func (h *Hub) WebSocket(conn net.Conn, ws WebSocket) {
	h.start(mouthWebSocket, conn, func(s *session) error {
		c, err := upgrade(s.socket, ws)
		if err != nil {
			return err
		}
		return h.newPeer(s, c).run(ws)
	}, func() {
		if ws.Reader != nil {
			ws.Reader.Close()
		}
	})
}

// upgrade answers the handshake. The library's own way for fasthttp keeps the server's read buffer, at
// 16 KiB, and the whole request for as long as the connection lives; this way an idle one keeps readBuffer.
func upgrade(s *socket, ws WebSocket) (*websocket.Conn, error) {
	u := websocket.Upgrader{
		ReadBufferSize:  readBuffer,
		WriteBufferPool: noBuffers{}, // frames are written by the session itself
		Subprotocols:    []string{Subprotocol},
		CheckOrigin:     func(*http.Request) bool { return true }, // was checked at the door, for every request
		Error:           func(http.ResponseWriter, *http.Request, int, error) {},
	}
	w := &hijacker{conn: &controlled{socket: s}}
	c, err := u.Upgrade(w, &http.Request{Method: http.MethodGet, Header: ws.Request}, ws.Answer)
	if err != nil {
		return nil, err
	}
	w.conn.silent = true
	return c, nil
}

// controlled is the socket as the library sees it: after the handshake it can read from it and not
// write, so that the session's goroutine is the only one that does.
type controlled struct {
	*socket
	silent bool
}

// Write passes the answer to the handshake, and drops the control frames that the library makes later
// on; the session sends its own.
func (c *controlled) Write(b []byte) (int, error) {
	if c.silent {
		return len(b), nil
	}
	return len(b), c.socket.write(b)
}

// SetWriteDeadline and SetDeadline leave the deadline of writes to the session.
func (c *controlled) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets nothing: the library clears deadlines with it, and there are none.
func (c *controlled) SetDeadline(time.Time) error { return nil }

// Close closes the socket.
func (c *controlled) Close() error {
	c.socket.abort()
	return nil
}

// hijacker gives the library the connection in the way it expects from net/http.
type hijacker struct{ conn *controlled }

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	// Nothing is buffered: a client may send no frame before it has the answer.
	return h.conn, bufio.NewReadWriter(bufio.NewReaderSize(h.conn, 16), bufio.NewWriterSize(h.conn, 16)), nil
}

func (h *hijacker) Header() http.Header { return http.Header{} }

func (h *hijacker) Write([]byte) (int, error) {
	return 0, errors.New("the answer to a handshake is not written here")
}

func (h *hijacker) WriteHeader(int) {}

// noBuffers is a pool without buffers: the library writes no frames.
type noBuffers struct{}

func (noBuffers) Get() any { return nil }
func (noBuffers) Put(any)  {}
