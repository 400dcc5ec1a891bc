package client

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// grouping is the flags of consume for a member of a group.
type grouping struct {
	group   string
	member  string
	ack     string
	prefix  string
	pattern string
}

func (g *grouping) registerGroup(cmd *cobra.Command, conn *connection) {
	flags := cmd.Flags()
	flags.StringVarP(&g.group, "group", "g", "", "read as a member of this consumer group, which keeps the position and shares the partitions out")
	flags.StringVar(&g.member, "member", "", "with --group: this member's name, the same after a restart; - has the group make one (default: host and process id)")
	flags.StringVar(&g.ack, "ack", "after", "with --group: when records are acknowledged: after they were printed, or auto, as they are sent, which may lose some")
	flags.StringVar(&g.prefix, "topic-prefix", "", "with --group: read all topics whose names begin with this")
	flags.StringVar(&g.pattern, "topic-pattern", "", "with --group: read all topics whose names match this expression (RE2) as a whole")
	_ = cmd.RegisterFlagCompletionFunc("group", groupNames(conn)) // fails only for a flag that is not there
}

// arguments takes the topics: one, or, in a group, as many as one likes.
func (g *grouping) arguments(cmd *cobra.Command, args []string) error {
	if !cmd.Flags().Changed("group") {
		if len(args) > 1 {
			return fmt.Errorf("%q is one argument too many: several topics need a --group", args[1])
		}
		return Arguments("TOPIC")(cmd, args)
	}
	if len(args) == 0 && g.prefix == "" && g.pattern == "" {
		return fmt.Errorf("TOPIC is missing: %s", cmd.UseLine())
	}
	for _, topic := range args {
		if err := checkTopic(topic); err != nil {
			return err
		}
	}
	return nil
}

// checkGroup refuses flags that do not go together.
func (g *grouping) checkGroup(cmd *cobra.Command, topics int) error {
	changed := cmd.Flags().Changed
	if !changed("group") {
		for _, flag := range []string{"member", "ack", "topic-prefix", "topic-pattern"} {
			if changed(flag) {
				return fmt.Errorf("--%s needs a --group", flag)
			}
		}
		return nil
	}
	for _, flag := range []string{"partition", "offset", "print-position"} {
		if changed(flag) {
			return fmt.Errorf("--%s does not go with --group: the group shares the partitions out and keeps the position", flag)
		}
	}
	ways := 0
	for _, is := range []bool{topics > 0, g.prefix != "", g.pattern != ""} {
		if is {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("give topics, a --topic-prefix or a --topic-pattern, one of the three")
	case g.ack != "after" && g.ack != "auto":
		return fmt.Errorf("--ack %q: must be after or auto", g.ack)
	}
	return errors.Join(checkWord("--group", g.group), checkWord("--member", cmp.Or(g.member, "-")))
}

// join makes the member of the flags. It asks nobody yet.
func (c *consuming) join(cl *Client, topics []string) (*member, error) {
	asks := map[string]any{"value_format": "base64"}
	if c.format == "json" {
		asks["value_format"] = "auto"
	}
	switch {
	case c.prefix != "":
		asks["topic_prefix"] = c.prefix
	case c.pattern != "":
		asks["topic_pattern"] = c.pattern
	default:
		slices.Sort(topics)
		asks["topics"] = slices.Compact(topics)
	}
	if c.from != "" {
		from, err := place("--from", c.from, "earliest, latest or ts:<time>: where a group begins that has no position yet")
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(from, "-") {
			return nil, fmt.Errorf("--from %q: a group begins at earliest, latest or ts:<time>", c.from)
		}
		asks["start"] = from
	}
	return &member{
		client: cl, group: c.group, name: cmp.Or(c.member, ownName()), key: rand.Text(), asks: asks, auto: c.ack == "auto",
	}, nil
}

// leaveWithin is how long leaving may take once somebody wants the command to end.
const leaveWithin = 5 * time.Second

// share prints what the group gives this member, and leaves the group however it ends, but for a take-over.
func (c *consuming) share(ctx context.Context, m *member, p *printer, diagnostics io.Writer) error {
	err := c.polls(ctx, m, p, diagnostics)
	var taken *TakenOverError
	if !m.joined || errors.As(err, &taken) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	refused, left := m.leave(ctx)
	refusals(diagnostics, refused)
	switch {
	case left == nil:
		return err
	case err == nil:
		return fmt.Errorf("the last records are not known to be acknowledged and may come again: %w", left)
	default:
		fmt.Fprintf(diagnostics, "weir: the group was not told that %s left, and notices by itself: %v\n", m.name, left)
		return err
	}
}

// polls prints page after page. What was printed has left the process before the poll that acknowledges it.
func (c *consuming) polls(ctx context.Context, m *member, p *printer, diagnostics io.Writer) error {
	told := ""         // what was said last of what it reads
	var lacks []string // and of topics that do not exist
	for n := int64(0); c.most == 0 || n < c.most; {
		most := int64(pageRecords)
		if c.most > 0 {
			most = min(most, c.most-n)
		}
		t, err := c.turn(ctx, m, most, diagnostics)
		if err != nil {
			return err
		}
		refusals(diagnostics, t.NotCommitted)
		if now := t.standing(m); now != told {
			fmt.Fprintf(diagnostics, "weir: %s\n", now)
			told = now
		}
		if !slices.Equal(t.Missing, lacks) {
			if err := c.missing(m, t, diagnostics); err != nil {
				return err
			}
			lacks = t.Missing
		}
		for _, g := range t.Gaps {
			fmt.Fprintf(diagnostics, "weir: %s has no offsets from %d up to %d: %s\n", spot(g.Topic, g.Partition), g.From, g.To, g.Reason)
		}
		for _, record := range t.Records {
			if err := p.print(record); err != nil {
				return err
			}
		}
		if err := p.w.Flush(); err != nil {
			return err
		}
		if len(t.Records) > 0 || len(t.Gaps) > 0 {
			m.done(t.Cursor)
		}
		n += int64(len(t.Records))
		if !c.follow && len(t.Records) == 0 && len(t.Gaps) == 0 && !t.AssignmentChanged {
			return nil
		}
	}
	return nil
}

// turn polls until there is an answer, for as long as that makes sense.
func (c *consuming) turn(ctx context.Context, m *member, most int64, diagnostics io.Writer) (*turn, error) {
	wait := pageWait
	if !c.follow || !m.joined { // who has just joined wants to know what it reads
		wait = 0
	}
	begun := time.Now()
	for try := 0; ; try++ {
		t, err := m.poll(ctx, most, wait)
		switch {
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !m.worthAnother(err), (!m.joined || !c.follow) && time.Since(begun) > m.client.timeout:
			return nil, err
		case try == 0:
			fmt.Fprintf(diagnostics, "weir: %v; trying again\n", err)
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// standing is a sentence on what the member reads, and what it waits for.
func (t *turn) standing(m *member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of group %s reads ", m.name, m.group)
	if len(t.Assignment) == 0 {
		b.WriteString("nothing yet")
	} else {
		b.WriteString(shares(t.Assignment))
	}
	awaited(&b, t.WaitingFor)
	return b.String()
}

// What a line says of awaited partitions: of so many members, and their numbers where those fit into so many bytes.
const (
	mostHolders = 3
	mostAwaited = 40
)

// awaited says from whom what is awaited.
func awaited(b *strings.Builder, all []waitingFor) {
	var holders []string
	of := map[string][]assigned{}
	count := map[string]int{}
	for _, w := range all {
		if count[w.Member]++; count[w.Member] == 1 {
			holders = append(holders, w.Member)
		}
		have := of[w.Member]
		if n := len(have); n == 0 || have[n-1].Topic != w.Topic {
			have = append(have, assigned{Topic: w.Topic})
		}
		last := &have[len(have)-1]
		last.Partitions = append(last.Partitions, w.Partition)
		of[w.Member] = have
	}
	for i, holder := range holders {
		what := shares(of[holder])
		if len(what) > mostAwaited {
			what = fmt.Sprintf("%d partitions", count[holder])
		}
		switch {
		case i == mostHolders:
			fmt.Fprintf(b, " and %d more members", len(holders)-i)
			return
		case i == 0:
			b.WriteString("; waits for ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s from %s", what, holder)
	}
}

// missing says in words which of the topics that were asked for do not exist: the group waits for them, a person may
// have mistyped one. It is an error where there is nothing else to read and nothing is waited for.
func (c *consuming) missing(m *member, t *turn, diagnostics io.Writer) error {
	topics, _ := m.asks["topics"].([]string) // none: a prefix or a pattern
	switch {
	case c.follow || len(t.Missing) == 0 || len(t.Missing) < len(topics):
	case len(topics) == 1:
		return fmt.Errorf("topic %s does not exist", topics[0])
	default:
		return fmt.Errorf("none of the topics exists: %s", strings.Join(topics, ", "))
	}
	for _, topic := range t.Missing {
		fmt.Fprintf(diagnostics, "weir: topic %s does not exist; it is read once it does\n", topic)
	}
	return nil
}

// runGroup is run for a member of a group.
func (c *consuming) runGroup(cmd *cobra.Command, topics []string) error {
	if !cmd.Flags().Changed("follow") {
		c.follow = true
	}
	cl, err := c.conn.client()
	if err != nil {
		return err
	}
	m, err := c.join(cl, topics)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(output{cmd.OutOrStdout()}, 64<<10)
	return c.share(cmd.Context(), m, &printer{w: out, asJSON: c.format == "json"}, cmd.ErrOrStderr())
}
