package cluster

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// remembered is what a repeat of a command is answered from.
type remembered struct {
	id          CommandID
	version     uint64
	op          string // "cluster.CreateTopic", of a refusal
	code        string // of the refusal's kind; "" when the command took effect
	where       string
	sentence    string
	topic       topic.ID
	deletes     bool // the command deleted the topic
	incarnation topic.Incarnation
}

// remember keeps of a result what fits.
func remember(id CommandID, result Result) remembered {
	kept := remembered{id: id, version: result.Version, incarnation: result.Incarnation, deletes: result.deletes}
	if result.Topic != nil {
		kept.topic = result.Topic.ID
	}
	var refusal *fault.Error
	if errors.As(result.Err, &refusal) {
		kept.op, kept.code, kept.where = refusal.Op, refusal.Kind.String(), refusal.Where
		kept.sentence = shortened(fault.Sentence(refusal))
	}
	return kept
}

// shortened bounds what a state keeps of what somebody sent.
func shortened(s string) string {
	const most = 1_000
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.Clone(s[:cut]) + "…"
}

// kindOf undoes fault.Kind.String. Codes are kept instead of numbers, since those may move.
func kindOf(code string) fault.Kind {
	for _, k := range fault.Kinds() {
		if k.String() == code {
			return k
		}
	}
	return fault.Internal
}

func whereOf(where string) any {
	if where == "" {
		return nil
	}
	return where
}

// recent is the memory of the last MaxCommandsRemembered commands.
type recent struct {
	ring []remembered // grows up to the cap, then goes round
	next int          // where the next one goes once the ring is full: the oldest
	at   map[CommandID]int
}

func newRecent() recent { return recent{at: map[CommandID]int{}} }

func (r *recent) find(id CommandID) (remembered, bool) {
	at, ok := r.at[id]
	if !ok {
		return remembered{}, false
	}
	return r.ring[at], true
}

// add remembers a command in place of the oldest. The zero id is not remembered.
func (r *recent) add(kept remembered) {
	if kept.id == (CommandID{}) {
		return
	}
	if len(r.ring) < MaxCommandsRemembered {
		r.at[kept.id] = len(r.ring)
		r.ring = append(r.ring, kept)
		return
	}
	delete(r.at, r.ring[r.next].id)
	r.ring[r.next] = kept
	r.at[kept.id] = r.next
	r.next = (r.next + 1) % len(r.ring)
}

// list copies the memory, oldest first.
func (r *recent) list() []remembered {
	list := make([]remembered, 0, len(r.ring))
	list = append(list, r.ring[r.next:]...)
	return append(list, r.ring[:r.next]...)
}

// String helps a test that fails.
func (r remembered) String() string { return fmt.Sprintf("%x: %q %s", r.id, r.code, r.sentence) }
