package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// TakenOverError says that another process has joined a group with the member's name: this one is no member
// any more. To start it again would take the name from the other.
type TakenOverError struct{ Group, Member string }

func (e *TakenOverError) Error() string {
	return fmt.Sprintf("another process has joined group %s as %s and goes on from what was acknowledged; this one ends", e.Group, e.Member)
}

// member is a member of a group that polls. It keeps what the next poll has to name; whether what it got was
// dealt with, its user says with done.
type member struct {
	client *Client
	group  string
	name   string         // "-" until the group made one
	key    string         // of the poll that asks for a name: sent again, it gets the same one
	asks   map[string]any // of every poll, so that each can join: what is read, and how
	auto   bool           // the group acknowledges as it answers

	joined bool
	epoch  int64
	ack    string // the cursor behind what was dealt with; empty: all of that is acknowledged
}

// turn is the answer to a poll.
type turn struct {
	Member            string
	Epoch             int64
	Assignment        []assigned
	AssignmentChanged bool `json:"assignment_changed"`
	Records           []json.RawMessage
	Cursor            string
	Lag               int64
	NotCommitted      []notCommitted `json:"not_committed"`
	WaitingFor        []waitingFor   `json:"waiting_for"`
	Missing           []string       `json:"missing_topics"`
	Gaps              []gap
}

// assigned is the partitions of a topic that a member reads.
type assigned struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// notCommitted is a part of an acknowledgement that did not count.
type notCommitted struct {
	Topic     string
	Partition int32
	Next      int64 `json:"next_offset"`
	Reason    string
}

// waitingFor is a partition that another member has to give up first.
type waitingFor struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Member    string `json:"member"`
}

// ownName is a member's name when nobody gives one: no two processes have it at a time.
func ownName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// poll joins or renews the membership, acknowledges what is done, and asks for records. Sent again after an
// answer that was lost, it gets the same records.
func (m *member) poll(ctx context.Context, most int64, wait time.Duration) (*turn, error) {
	body := map[string]any{"max_records": most, "wait_ms": wait.Milliseconds()}
	for name, value := range m.asks {
		body[name] = value
	}
	if m.joined {
		body["epoch"] = m.epoch
	}
	if m.ack != "" {
		body["ack"] = m.ack
	}
	if m.auto {
		body["auto_ack"] = true
	}
	waiting := *m.client
	waiting.timeout += wait
	if m.name == "-" {
		waiting.key = m.key
	}
	var t turn
	if err := waiting.Call(ctx, http.MethodPost, m.path()+"/poll", body, &t); err != nil {
		return nil, m.refused(err)
	}
	m.name, m.epoch, m.joined, m.ack = t.Member, t.Epoch, true, ""
	return &t, nil
}

// done says that everything before the cursor was dealt with. The next poll acknowledges it, or leave.
func (m *member) done(cursor string) {
	if !m.auto {
		m.ack = cursor
	}
}

// leave acknowledges what is done and gives up what is assigned, in one call.
func (m *member) leave(ctx context.Context) ([]notCommitted, error) {
	query := url.Values{"epoch": {strconv.FormatInt(m.epoch, 10)}}
	if m.ack != "" {
		query.Set("ack", m.ack)
	}
	var answer struct {
		NotCommitted []notCommitted `json:"not_committed"`
	}
	for try := 0; ; try++ {
		err := m.refused(m.client.Call(ctx, http.MethodDelete, m.path()+"?"+query.Encode(), nil, &answer))
		var p *Problem
		switch {
		case errors.As(err, &p) && p.Code == "member_not_found" && (try > 0 || m.ack == ""):
			return nil, nil // the first try did it, or there is nothing to be done
		case err == nil || !retryable(err) || pause(ctx, try) != nil:
			return answer.NotCommitted, err
		}
	}
}

// refused makes an answer that ends a membership an error of its own.
func (m *member) refused(err error) error {
	var p *Problem
	if errors.As(err, &p) && p.Code == "fenced_member" {
		return &TakenOverError{m.group, m.name}
	}
	return err
}

// worthAnother says that a poll that failed is worth another try. One that another took the place of is: that was an
// older try of this one, or else the next try says that the name was taken over.
func (m *member) worthAnother(err error) bool {
	var p *Problem
	if errors.As(err, &p) {
		return retryable(err) || p.Code == "superseded_poll"
	}
	return m.joined && retryable(err) // nobody there at the first call: more likely another address was meant
}

func (m *member) path() string { return groupPath(m.group, "members", url.PathEscape(m.name)) }

// groupPath is the address of a group, or of what is below it.
func groupPath(group string, below ...string) string {
	return strings.Join(append([]string{"/v1/groups", url.PathEscape(group)}, below...), "/")
}

// spot is a partition in words for people.
func spot(topic string, partition int32) string {
	if topic == "" {
		topic = "a topic that is gone"
	}
	return fmt.Sprintf("%s/%d", topic, partition)
}

// pause waits before a try; its error is why there is to be none.
func pause(ctx context.Context, try int) error {
	select {
	case <-time.After(backoff(try)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusals says in words what of an acknowledgement did not count: whoever reads these partitions now gets
// the records again.
func refusals(w io.Writer, refused []notCommitted) {
	for _, r := range refused {
		why := map[string]string{
			"not_assigned":     "another member reads the partition now and gets these records again",
			"reassigned":       "the position was moved, or the partition was given away in between; they may come again",
			"topic_deleted":    "the topic was deleted",
			"beyond_end":       "the log was cut below them",
			"behind_committed": "later ones are acknowledged already",
		}[r.Reason]
		if why == "" {
			why = r.Reason
		}
		fmt.Fprintf(w, "weir: records of %s before offset %d are not acknowledged: %s\n", spot(r.Topic, r.Partition), r.Next, why)
	}
}
