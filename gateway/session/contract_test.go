package session_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirlog/weir/gateway/session"
)

// asyncMessage is a message as asyncapi.yaml has it.
type asyncMessage struct {
	Payload struct {
		Ref        string `yaml:"$ref"`
		Required   []string
		Properties map[string]struct {
			Const any
		}
	}
	Examples []struct{ Payload any }
}

// op is what the document says for op.
func (m asyncMessage) op() string { return fmt.Sprint(m.Payload.Properties["op"].Const) }

// required are the members that the message has to have.
func (m asyncMessage) required() []string {
	if m.Payload.Ref != "" {
		return []string{"op", "sub"} // the one schema that messages share
	}
	return m.Payload.Required
}

// asyncAPI is asyncapi.yaml: the messages of each direction, by op.
var asyncAPI = sync.OnceValue(func() (doc struct{ client, server map[string]asyncMessage }) {
	text, err := os.ReadFile("../../asyncapi.yaml")
	if err != nil {
		panic(err)
	}
	var file struct {
		Operations map[string]struct {
			Messages []struct {
				Ref string `yaml:"$ref"`
			}
		}
		Components struct{ Messages map[string]asyncMessage }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		panic(err)
	}
	pick := func(operation string) map[string]asyncMessage {
		picked := map[string]asyncMessage{}
		for _, m := range file.Operations[operation].Messages {
			name := m.Ref[len("#/channels/socket/messages/"):]
			found := file.Components.Messages[name]
			picked[found.op()] = found
		}
		return picked
	}
	doc.client, doc.server = pick("send"), pick("push")
	return doc
})

// seenOps are the ops that any test has got from a server.
var seenOps sync.Map

// checkContract compares a message of the server with asyncapi.yaml.
func checkContract(t testing.TB, raw []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	var op string
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Errorf("%s: %v", raw, err)
		return
	}
	if err := json.Unmarshal(members["op"], &op); err != nil {
		t.Errorf("%s: op: %v", raw, err)
		return
	}
	seenOps.Store(op, true)
	m, known := asyncAPI().server[op]
	if !known {
		t.Errorf("asyncapi.yaml has no message of the server like %s", raw)
	}
	for _, name := range m.required() {
		if _, there := members[name]; !there {
			t.Errorf("%.300s has no %s, which asyncapi.yaml requires", raw, name)
		}
	}
	for name := range members {
		if m.Payload.Ref == "" {
			if _, there := m.Payload.Properties[name]; !there {
				t.Errorf("%.300s has %s, which asyncapi.yaml does not know", raw, name)
			}
		}
	}
}

// unseenOps are documented and were sent by no server in any test.
func unseenOps() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(asyncAPI().server)), func(op string) bool {
		_, seen := seenOps.Load(op)
		return seen
	})
}

func TestTheExamplesOfTheContractAreUnderstood(t *testing.T) {
	ops := slices.Sorted(maps.Keys(asyncAPI().client))
	want := []string{"ack", "credit", "pause", "ping", "produce", "resume", "seek", "subscribe", "unsubscribe"}
	if !slices.Equal(ops, want) {
		t.Errorf("asyncapi.yaml has the ops %v, the server knows %v", ops, want)
	}
	examples := 0
	for _, m := range asyncAPI().client {
		for _, e := range m.Examples {
			raw, err := json.Marshal(e.Payload)
			if err != nil {
				t.Fatal(err)
			}
			examples++
			if bytes.Contains(raw, []byte("c1.AbC")) { // no real cursor
				raw = []byte(`{"id":2,"op":"subscribe","sub":"a","topic":"orders","partitions":[0,1],"credit":{"records":1000,"bytes":1048576},"on_gap":"earliest"}`)
			}
			if err := session.CheckFrame(raw); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
		}
	}
	if examples < 6 {
		t.Errorf("only %d examples", examples)
	}
}

func TestGapsAndPartitionsOverWebSocket(t *testing.T) {
	bubble(t, nil, func(t *testing.T, log *fakeLog, h *session.Hub) {
		for range 4 {
			log.values("orders", 0, "1")
		}
		log.retain("orders", 0, 2)
		c := dial(t, h, session.WebSocket{})
		c.next("hello")
		c.send(`{"op":"subscribe","sub":"a","topic":"orders","from":{"offsets":{"0":1}}}`)
		c.next("ok")
		if m := c.next("gap"); m.From != 1 || m.To != 2 || m.Reason != "retention" || m.Sub != "a" {
			t.Errorf("got %s", m.raw)
		}
		if got := c.values(2); len(got) != 2 {
			t.Errorf("after the gap: %v", got)
		}
		c.next("caught_up")
		c.send(`{"op":"subscribe","sub":"b","topic":"orders","from":"latest"}`)
		c.next("ok")
		c.next("caught_up")
		log.addPartitions("orders", 2)
		if m := c.next("partitions"); m.Sub != "b" || m.Count != 2 {
			t.Errorf("got %s", m.raw)
		}
		log.values("orders", 1, "5")
		if m := c.next("records"); m.Sub != "b" {
			t.Errorf("got %s", m.raw)
		}
		closeBoth(c)
	})
}
