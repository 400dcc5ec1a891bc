// Command bench measures weir against references in one run on one machine and prints ratios.
//
// Each row compares two things in turn (A B A B …) and prints the median of both with the lowest and
// the highest, the ratio of the medians, and whether the target is met. A row whose reference is not
// on the machine prints "not run". Nothing here passes or fails a build: machines are noisy.
//
// The references are small programs of this module, started as processes of their own so that both
// sides share the machine with the load generator in the same way: a bare Fiber handler, a bare
// WebSocket broadcast, a bare write and sync, NATS JetStream, and redis-server where it is installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// bench is what the rows share.
type bench struct {
	weirPath   string
	dir        string        // for data; removed at the end
	roundCount int           // measured rounds; one more is thrown away
	span       time.Duration // of one measure of a rate
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "reference" {
		if err := runReference(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench reference:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	b := &bench{}
	only := flag.String("rows", "", "rows to run, with commas: P1,P8/out (default: all)")
	flag.StringVar(&b.weirPath, "weir", "../bin/weir", "the weir binary")
	flag.IntVar(&b.roundCount, "rounds", 5, "measured rounds of each row, at least 5 for a verdict worth having")
	flag.DurationVar(&b.span, "span", 2*time.Second, "length of one measure of a rate")
	parent := flag.String("dir", "", "where to put data (default: the system's temporary directory)")
	flag.Parse()
	if b.roundCount < 1 || b.span <= 0 {
		return errors.New("-rounds and -span must be above 0")
	}
	if _, err := exec.LookPath(b.weirPath); err != nil {
		return fmt.Errorf("no weir binary (make build makes one): %w", err)
	}
	dir, err := os.MkdirTemp(*parent, "weir-bench-")
	if err != nil {
		return err
	}
	b.dir = dir
	defer os.RemoveAll(dir)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	if err := warmMemory(dir); err != nil {
		return err
	}
	var results []result
	var failed error
	for _, r := range rows() {
		if !wanted(*only, r.id) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-8s %s\n", r.id, r.what)
		res, err := b.measure(ctx, r)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			failed = errors.Join(failed, err)
			res.note = err.Error()
		}
		results = append(results, res)
	}
	if err := printTable(os.Stdout, results); err != nil {
		return err
	}
	return failed
}

// warmMemory has the machine touch the memory that the rows' files will be cached in. Where the machine is
// a guest, the first use of a page waits for its host: writes are ten times slower then, which says nothing
// about the program.
func warmMemory(dir string) error {
	f, err := os.CreateTemp(dir, "warm-")
	if err != nil {
		return err
	}
	chunk := make([]byte, mebibyte)
	for range 1024 {
		if _, err = f.Write(chunk); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// wanted says whether the list names the row, or the part of its id before the slash.
func wanted(list, id string) bool {
	if list == "" {
		return true
	}
	group, _, _ := strings.Cut(id, "/")
	for _, w := range strings.Split(list, ",") {
		if w = strings.TrimSpace(w); w == id || w == group {
			return true
		}
	}
	return false
}

func rows() []row {
	var all []row
	for _, group := range [][]row{produceRows(), storageRows(), fanoutRows(), readRows(), nodeRows(), groupRows()} {
		all = append(all, group...)
	}
	return all
}

// data makes an empty directory for one side of a row.
func (b *bench) data(name string) (string, error) {
	return os.MkdirTemp(b.dir, strings.ReplaceAll(name, string(filepath.Separator), "-")+"-")
}

func asAbsent(err error, target *absent) bool { return errors.As(err, target) }
