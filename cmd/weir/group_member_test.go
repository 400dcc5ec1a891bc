package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// asMember, set in the environment to a memberConfig, makes the test's own binary a member of a group: a
// process that can be stopped, continued and killed like anybody's.
const asMember = "WEIR_TEST_AS_MEMBER"

// memberConfig is what such a process is told.
type memberConfig struct {
	BaseFile             string // holds the node's URL, another one each time that it starts
	Journal              string // where the process writes what it does and what it is told
	Group, Member, Topic string
	Seed                 uint64
}

// How a member's process ends by itself.
const (
	memberLeft   = 0
	memberBroken = 1 // something happened that must not; the journal says what
	memberFenced = 3 // another process has taken its name over
)

// journalLine is written before a call with Call, and after its answer with Answer.
type journalLine struct {
	At     int64 // nanoseconds of the machine's clock, the same for all processes
	Call   *memberCall
	Answer *memberAnswer
}

// memberCall is a call that a member is about to make.
type memberCall struct {
	Op         string // poll, commit or leave
	Epoch      int64
	Ack, After string
}

// memberAnswer is what became of it. The group's part is empty unless the outcome is stored.
type memberAnswer struct {
	Outcome outcome
	Status  int
	Code    string
	Err     string
	groupAnswer
}

// groupAnswer is the answer to a poll, a commit or a leave.
type groupAnswer struct {
	Member            string
	Epoch             int64
	Assignment        []topicPartitions
	AssignmentChanged bool `json:"assignment_changed"`
	Records           []groupRecord
	Cursor            string
	Committed         []groupOffset
	Lag               int64
	NotCommitted      []groupOffset    `json:"not_committed"`
	WaitingFor        []groupWait      `json:"waiting_for"`
	Gaps              []map[string]any `json:",omitempty"`
}

type topicPartitions struct {
	Topic      string
	Partitions []int
}

type groupRecord struct {
	Topic         string
	Partition     int
	Offset        int64
	Key           string
	KeyEncoding   string `json:"key_encoding"`
	Value         json.RawMessage
	ValueEncoding string `json:"value_encoding"`
}

type groupOffset struct {
	Topic     string
	Partition int
	Next      *int64 `json:"next_offset"`
	Reason    string `json:",omitempty"`
}

type groupWait struct {
	Topic     string
	Partition int
	Member    string
}

// memberProcess is the life of such a process. It behaves as a client should: it repeats a call that was
// not answered, acknowledges before it lets go of partitions, and leaves when it is asked to end.
type memberProcess struct {
	memberConfig
	journal *os.File
	rng     *rand.Rand
	epoch   int64
	cursor  string // of the last answer, when what it covers is not acknowledged yet
	told    bool   // that it has joined, to whoever started it
}

// runMember is the program.
func runMember(config string) int {
	m := &memberProcess{}
	if err := json.Unmarshal([]byte(config), &m.memberConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return memberBroken
	}
	var err error
	if m.journal, err = os.OpenFile(m.Journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return memberBroken
	}
	m.rng = rand.New(rand.NewPCG(m.Seed, 1))
	httpc.Timeout = 0 // see ask
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when whoever started this process is gone
		os.Exit(memberBroken)
	}()
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGTERM)
	return m.work(leave)
}

// work polls until it is told to leave, or cannot go on.
func (m *memberProcess) work(leave <-chan os.Signal) int {
	unacked := 0
	for {
		select {
		case <-leave:
			return m.leave()
		case <-time.After(time.Duration(m.rng.IntN(30)) * time.Millisecond): // what it does with the records
		}
		call := memberCall{Op: "poll", Epoch: m.epoch, Ack: m.cursor}
		switch way := m.rng.IntN(6); {
		case m.cursor == "":
		case way == 0:
			a, code := m.until(memberCall{Op: "commit", Epoch: m.epoch, Ack: m.cursor})
			if code != 0 {
				return code
			}
			call.Ack = ""
			if a.Outcome == stored {
				call.After = m.cursor
			}
		case way == 1 && unacked < 3: // it reads on, and acknowledges more at once later
			call.Ack, call.After = "", m.cursor
		}
		unacked++
		if call.Ack != "" || call.After == "" {
			unacked = 0
		}
		a, code := m.until(call)
		if code != 0 {
			return code
		}
		m.epoch, m.cursor = a.Epoch, a.Cursor
		if a.AssignmentChanged {
			unacked = 3 // what it has to give up is acknowledged with the next call, which lets go of it
		}
		if !m.told {
			fmt.Println("joined")
			m.told = true
		}
	}
}

// until makes a call until its outcome is known. What ends the process has a code other than 0.
func (m *memberProcess) until(call memberCall) (memberAnswer, int) {
	for {
		a := m.call(call)
		switch {
		case a.Outcome == stored:
			return a, 0
		case a.Code == "fenced_member":
			return a, memberFenced
		case call.Op == "commit" && (a.Code == "stale_member_epoch" || a.Code == "member_not_found"):
			return a, 0 // it polls, and sees where it stands
		case call.Op == "leave" && a.Code == "member_not_found":
			return a, 0
		case a.Status != 0 && a.Status != http.StatusServiceUnavailable && a.Status != http.StatusGatewayTimeout:
			return a, memberBroken
		}
		<-time.After(time.Duration(5+m.rng.IntN(20)) * time.Millisecond)
	}
}

func (m *memberProcess) leave() int {
	if _, code := m.until(memberCall{Op: "leave", Epoch: m.epoch, Ack: m.cursor}); code != 0 {
		return code
	}
	return memberLeft
}

// call makes one call, with a line in the journal before and one after.
func (m *memberProcess) call(call memberCall) memberAnswer {
	m.write(journalLine{Call: &call})
	a := m.ask(call)
	for i := range a.Records {
		a.Records[i].Value = shortened(a.Records[i].Value)
	}
	m.write(journalLine{Answer: &a})
	return a
}

// shortened is the text of a record without what only makes it long: its producer and its number.
func shortened(value json.RawMessage) json.RawMessage {
	if words := strings.SplitN(string(value), " ", 3); len(words) == 3 {
		return json.RawMessage(words[0] + " " + words[1] + `"`)
	}
	return value
}

func (m *memberProcess) write(line journalLine) {
	line.At = time.Now().UnixNano()
	text, err := json.Marshal(line)
	if err == nil {
		_, err = m.journal.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the journal:", err)
		os.Exit(memberBroken)
	}
}

func (m *memberProcess) ask(call memberCall) memberAnswer {
	base, err := os.ReadFile(m.BaseFile)
	if err != nil {
		return memberAnswer{Outcome: refused, Err: err.Error()}
	}
	method, target := http.MethodPost, string(base)+"/v1/groups/"+url.PathEscape(m.Group)+"/members/"+url.PathEscape(m.Member)
	body := map[string]any{}
	if call.Epoch != 0 {
		body["epoch"] = call.Epoch
	}
	if call.Ack != "" {
		body["ack"] = call.Ack
	}
	switch call.Op {
	case "poll":
		target += "/poll"
		body["topics"], body["wait_ms"], body["max_records"], body["value_format"] = []string{m.Topic}, 1000, 1+m.rng.IntN(200), "string"
		if call.After != "" {
			body["after"] = call.After
		}
	case "commit":
		target += "/commit"
	case "leave":
		method = http.MethodDelete
		query := url.Values{"epoch": {fmt.Sprint(call.Epoch)}}
		if call.Ack != "" {
			query.Set("ack", call.Ack)
		}
		target += "?" + query.Encode()
	}
	text, err := json.Marshal(body)
	if err != nil {
		return memberAnswer{Outcome: refused, Err: err.Error()}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		// In steps, since a process that is stopped is not to find all of its time gone.
		for range 250 {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
		cancel(errStuck)
	}()
	a, err := ask(ctx, method, target, string(text), "Content-Type", "application/json")
	if context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return judge(a, err)
}

// errStuck ends a call that is not answered in 25 seconds, where a poll waits for one.
var errStuck = errors.New("stuck: there is no answer")

// judge sorts an answer into the three outcomes: it counts, it does not and never will, or nobody knows.
func judge(a answer, err error) memberAnswer {
	out := memberAnswer{Outcome: unknown, Status: a.status}
	if err != nil {
		out.Status, out.Err = 0, err.Error()
		if errors.Is(err, syscall.ECONNREFUSED) {
			out.Outcome = refused // it never left
		}
		return out
	}
	switch {
	case a.status == http.StatusNoContent:
		out.Outcome = stored
	case a.status == http.StatusOK:
		out.Outcome = stored
		if err := json.Unmarshal(a.body, &out.groupAnswer); err != nil {
			out.Outcome, out.Err = unknown, fmt.Sprintf("%v in %.300s", err, a.body)
		}
	default:
		var problem struct{ Code, Detail string }
		if err := json.Unmarshal(a.body, &problem); err != nil {
			problem.Detail = fmt.Sprintf("no problem: %.300s", a.body)
		}
		out.Code, out.Err = problem.Code, problem.Detail
		// A poll that is fenced while it waits has had its ack committed before; one that comes too late has not.
		if a.status != http.StatusGatewayTimeout && problem.Code != "fenced_member" {
			out.Outcome = refused
			// A commit of which nothing counted says for each part why.
			_ = json.Unmarshal(a.body, &out.groupAnswer)
		}
	}
	return out
}

// memberName is the name of a slot's member.
func memberName(slot int) string {
	return "worker-" + strings.Repeat("é", slot%2) + string(rune('a'+slot))
}
