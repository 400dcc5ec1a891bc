package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/topic"
)

func produceRequest(host string, records int) (request string) {
	one := `{"key":"user-42","value":{"total":12.50,"text":"` + strings.Repeat("x", 160) + `"}}`
	body := `{"records":[` + strings.Repeat(one+",", records-1) + one + `]}`
	return fmt.Sprintf("POST /v1/topics/orders/records HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
}

// BenchmarkProduce compares the door, on a node that does nothing, with a bare handler of the same
// framework that scans the same JSON and drops it. Client and server share the machine on both sides.
func BenchmarkProduce(b *testing.B) {
	for _, records := range []int{1, 100} {
		b.Run(fmt.Sprintf("door/records=%d", records), func(b *testing.B) {
			w := start(b, func(_ *Config, d *Deps) { d.Logger = nil })
			w.node.answer(func(_ context.Context, a *topic.Append) error {
				for i := range a.Results {
					a.Results[i] = topic.Stored{Partition: 1, Offset: topic.Offset(i), Timestamp: 1762077600123}
				}
				return nil
			})
			hammer(b, w.addr(), produceRequest(w.addr(), records))
		})
		b.Run(fmt.Sprintf("bare/records=%d", records), func(b *testing.B) {
			app := fiber.New(fiber.Config{DisableStartupMessage: true})
			app.Post("/v1/topics/:topic/records", func(c *fiber.Ctx) error {
				d := recordjson.TakeDecoder()
				defer d.Release()
				if _, err := d.Body(c.Body(), 10_000); err != nil {
					return err
				}
				return c.SendString("ok")
			})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- app.Listener(l) }()
			hammer(b, l.Addr().String(), produceRequest(l.Addr().String(), records))
			if err := app.Shutdown(); err != nil {
				b.Fatal(err)
			}
			<-done
		})
	}
}

// stillGroups answers each poll with the same assignment.
type stillGroups struct {
	noGroups
	turn topic.GroupTurn
}

func (g *stillGroups) PollGroup(context.Context, *topic.GroupPoll) (topic.GroupTurn, error) {
	return g.turn, nil
}

// BenchmarkPoll is a poll of one record by a member that acknowledges the one before, on a node that does
// next to nothing; bare is a handler of the same framework that scans as much JSON and answers with as much.
func BenchmarkPoll(b *testing.B) {
	still := &stillGroups{}
	w := start(b, func(_ *Config, d *Deps) { d.Logger, d.Groups = nil, still })
	w.fill("orders", 1, 2)
	d, err := w.node.Topic("orders")
	if err != nil {
		b.Fatal(err)
	}
	at := topic.Assignment{Topic: "orders", Ref: topic.Ref{ID: d.ID}, Assigned: 7, Committed: 1, LastEpoch: 1}
	still.turn = topic.GroupTurn{Member: "w", Epoch: 7, Assignment: []topic.Assignment{at}, Turn: 1, Changed: make(chan struct{})}
	cursor := topic.GroupCursor{Group: topic.GroupSum("billing"), Epoch: 7}
	cursor.Advance(at.Ref, 1, 1, 7)
	body := fmt.Sprintf(`{"topics":["orders"],"epoch":7,"ack":%q,"wait_ms":20000}`, cursor)
	answer := w.json(worker+"/poll", body).want(b, 200).body
	b.Run("door", func(b *testing.B) {
		hammer(b, w.addr(), strings.Replace(post(worker+"/poll", typeJSON, body), "localhost", w.addr(), 1))
	})
	b.Run("bare", func(b *testing.B) {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Post("/v1/groups/:group/members/:member/poll", func(c *fiber.Ctx) error {
			if !recordjson.Valid(c.Body()) {
				return fiber.ErrBadRequest
			}
			return c.SendString(answer)
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- app.Listener(l) }()
		hammer(b, l.Addr().String(), post(worker+"/poll", typeJSON, body))
		if err := app.Shutdown(); err != nil {
			b.Fatal(err)
		}
		<-done
	})
}

// hammer sends one request after the other on each of many connections.
func hammer(b *testing.B, addr, request string) {
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReaderSize(c, 64<<10)
		for pb.Next() {
			if _, err := io.WriteString(c, request); err != nil {
				b.Error(err)
				return
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != 200 {
				b.Errorf("%v %v", resp, err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
}
