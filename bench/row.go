package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// row is one comparison: weir and a reference, measured in turn in one run on one machine.
type row struct {
	id     string // P1 … P21, with what varies behind a slash
	what   string
	unit   string // of the two measured values
	target float64
	// atMost says that the ratio must not be above the target; otherwise not below it. difference
	// compares weir - reference with the target instead of weir / reference.
	atMost, difference bool
	// setup starts both sides. The measures are called in turn; stop ends what setup started.
	setup func(ctx context.Context, b *bench) (sides, error)
}

// sides are the two things that a row compares. A side returns its value in the row's unit.
type sides struct {
	weir, reference func(ctx context.Context) (float64, error)
	stop            func() error
}

// absent is the error of a setup whose reference is not on this machine.
type absent struct{ what string }

func (e absent) Error() string { return e.what }

// result of a row.
type result struct {
	row             row
	weir, reference []float64 // sorted
	note            string    // why it was not run
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func (r result) compare(a, b float64) float64 {
	if r.row.difference {
		return a - b
	}
	return a / b
}

// verdict is met or missed when even the least and the most favourable pairing agree, undecided when
// the ranges reach over the target.
func (r result) verdict() string {
	least := r.compare(r.weir[0], r.reference[len(r.reference)-1])
	most := r.compare(r.weir[len(r.weir)-1], r.reference[0])
	meets := func(v float64) bool {
		if r.row.atMost {
			return v <= r.row.target
		}
		return v >= r.row.target
	}
	switch {
	case meets(least) && meets(most):
		return "met"
	case !meets(least) && !meets(most):
		return "missed"
	default:
		word := "below"
		if meets(r.compare(median(r.weir), median(r.reference))) {
			word = "above"
		}
		if r.row.atMost {
			word = map[string]string{"above": "within", "below": "over"}[word]
		}
		return "undecided (median " + word + ")"
	}
}

// measure runs a row: one warm-up of each side thrown away, then A B A B ….
func (b *bench) measure(ctx context.Context, r row) (result, error) {
	res := result{row: r}
	s, err := r.setup(ctx, b)
	if err != nil {
		var gone absent
		if asAbsent(err, &gone) {
			res.note = gone.what
			return res, nil
		}
		return res, fmt.Errorf("%s: setup: %w", r.id, err)
	}
	err = b.rounds(ctx, s, &res)
	if stopErr := s.stop(); err == nil && stopErr != nil {
		err = fmt.Errorf("stop: %w", stopErr)
	}
	if err != nil {
		return res, fmt.Errorf("%s: %w", r.id, err)
	}
	slices.Sort(res.weir)
	slices.Sort(res.reference)
	return res, nil
}

func (b *bench) rounds(ctx context.Context, s sides, res *result) error {
	for round := range b.roundCount + 1 {
		a, err := s.weir(ctx)
		if err != nil {
			return fmt.Errorf("weir: %w", err)
		}
		ref, err := s.reference(ctx)
		if err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		if round == 0 {
			continue // warm-up
		}
		res.weir = append(res.weir, a)
		res.reference = append(res.reference, ref)
	}
	return nil
}

func number(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 10_000:
		return fmt.Sprintf("%.0f k", v/1000)
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

// spread prints "median (lowest … highest)".
func spread(sorted []float64) string {
	return fmt.Sprintf("%s (%s … %s)", number(median(sorted)), number(sorted[0]), number(sorted[len(sorted)-1]))
}

func printTable(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "#\twhat\tunit\tweir\treference\tratio\ttarget\tverdict")
	for _, r := range results {
		sign := "≥"
		if r.row.atMost {
			sign = "≤"
		}
		if r.row.difference {
			sign = "+ " + sign
		}
		if r.note != "" {
			fmt.Fprintf(t, "%s\t%s\t%s\t-\t-\t-\t%s %s\tnot run: %s\n", r.row.id, r.row.what, r.row.unit, sign, number(r.row.target), r.note)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s %s\t%s\n", r.row.id, r.row.what, r.row.unit,
			spread(r.weir), spread(r.reference), number(r.compare(median(r.weir), median(r.reference))), sign, number(r.row.target), r.verdict())
	}
	return t.Flush()
}
