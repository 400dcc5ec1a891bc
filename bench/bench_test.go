package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary serve the references, as the program itself does.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "reference" {
		if err := runReference(os.Args[2], os.Args[3:]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestScanCountsRecordsAndRefusesBrokenBodies(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		if got, err := scan(records(n)); err != nil || got != n {
			t.Errorf("%d records: got %d, %v", n, got, err)
		}
	}
	for _, bad := range []string{`{"records":[`, `}`, `{"records":["`} {
		if _, err := scan([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestValueHas200Bytes(t *testing.T) {
	for _, i := range []int{0, 7, 99_999} {
		if v := value(i); len(v) != 200 {
			t.Errorf("value %d has %d bytes: %s", i, len(v), v)
		}
	}
}

func TestVerdictIsUndecidedWhenRangesReachOverTheTarget(t *testing.T) {
	for _, c := range []struct {
		row       row
		weir, ref []float64
		want      string
	}{
		{row{target: 0.5}, []float64{60, 70, 80}, []float64{90, 100, 110}, "met"},
		{row{target: 0.5}, []float64{10, 20, 30}, []float64{90, 100, 110}, "missed"},
		{row{target: 0.5}, []float64{40, 55, 60}, []float64{90, 100, 110}, "undecided (median above)"},
		{row{target: 2, atMost: true}, []float64{1, 1.1, 1.2}, []float64{1, 1, 1}, "met"},
		{row{target: 2, atMost: true}, []float64{1, 2.5, 3}, []float64{1, 1, 1}, "undecided (median over)"},
		{row{target: 300, atMost: true, difference: true}, []float64{100, 120, 130}, []float64{20, 21, 22}, "met"},
	} {
		if got := (result{row: c.row, weir: c.weir, reference: c.ref}).verdict(); got != c.want {
			t.Errorf("%v against %v, target %v: got %s, want %s", c.weir, c.ref, c.row.target, got, c.want)
		}
	}
}

func TestRowsHaveDistinctNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.id] || r.what == "" || r.unit == "" || r.target == 0 || r.setup == nil {
			t.Errorf("row %q is not complete, or not alone", r.id)
		}
		seen[r.id] = true
	}
}

func TestReferencesAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fiber, err := startReference(ctx, "fiber")
	if err != nil {
		t.Fatal(err)
	}
	body := records(3)
	load, err := dialLoad(fiber.addr, 2, always(post(fiber.addr, "/v1/topics/bench/records", body)))
	if err != nil {
		t.Fatal(err)
	}
	if rate, err := load.run(ctx, 50*time.Millisecond); err != nil || rate <= 0 {
		t.Errorf("fiber: %v a second, %v", rate, err)
	}
	if err := stopLoad(load, fiber); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"broadcast", "prepared"} {
		server, err := startReference(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := subscribe(server.addr, "/ws", 3)
		if err != nil {
			t.Fatal(err)
		}
		p, err := newPublisher(server.addr, post(server.addr, "/publish", weirFrame(2)), 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := (crowd{server, a, p}).settle(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.paced(ctx, a, server, 100*time.Millisecond); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.close(); err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
		if err := server.stop(); err != nil {
			t.Error(err)
		}
	}
	poll, err := startReference(ctx, "poll", `{"records":[{"offset":1,"value":1}],"cursor":"g1.AAAA"}`)
	if err != nil {
		t.Fatal(err)
	}
	members, err := dialPollers(poll.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := members.paced(ctx, poll, 100*time.Millisecond); err != nil {
		t.Errorf("poll: %v", err)
	}
	if err := errors.Join(members.close(), poll.stop()); err != nil {
		t.Error(err)
	}
	nats, err := startReference(ctx, "nats", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []int{1, 10} {
		pub, err := newNATSPublishers(nats.addr, batch)
		if err != nil {
			t.Fatal(err)
		}
		if rate, err := pub.run(ctx, 100*time.Millisecond); err != nil || rate <= 0 {
			t.Errorf("nats in batches of %d: %v a second, %v", batch, rate, err)
		}
		pub.close()
	}
	if err := nats.stop(); err != nil {
		t.Error(err)
	}
}

func stopLoad(l *httpLoad, p *process) error {
	if err := l.close(); err != nil {
		return err
	}
	return p.stop()
}
