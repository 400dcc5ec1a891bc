package cluster

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestATableIsASortedMapWhoseOldVersionsStay compares tables with maps, and every older version with
// the map that it was made beside.
func TestATableIsASortedMapWhoseOldVersionsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := table[int, *int]{compare: cmp.Compare[int]}
		model := map[int]*int{}
		type version struct {
			table table[int, *int]
			model map[int]*int
		}
		versions := []version{{now, maps.Clone(model)}}
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			key := rapid.IntRange(0, 300).Draw(t, "key")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2:
				now = now.without(key)
				delete(model, key)
			case 3:
				next := now.mapped(func(v *int) (*int, bool) {
					if *v%7 != 0 {
						return v, false
					}
					w := *v + 1
					return &w, true
				})
				for k := range model {
					model[k], _ = next.get(k)
				}
				now = next
			default:
				value := key * 2
				now = now.with(key, &value)
				model[key] = &value
			}
			if rapid.IntRange(0, 9).Draw(t, "keep") == 0 {
				versions = append(versions, version{now, maps.Clone(model)})
			}
		}
		versions = append(versions, version{now, maps.Clone(model)})
		for i, v := range versions {
			checkTable(t, v.table, v.model)
			checkDifferences(t, versions[0].table, v.table, versions[0].model, v.model)
			if i > 0 {
				checkDifferences(t, versions[i-1].table, v.table, versions[i-1].model, v.model)
				checkDifferences(t, v.table, versions[i-1].table, v.model, versions[i-1].model)
			}
		}
	})
}

func checkTable(t *rapid.T, got table[int, *int], want map[int]*int) {
	if got.count != len(want) {
		t.Fatalf("count is %d, want %d", got.count, len(want))
	}
	keys := slices.Sorted(maps.Keys(want))
	var walked []int
	for k, v := range got.all() {
		walked = append(walked, k)
		if v != want[k] {
			t.Fatalf("key %d has another value", k)
		}
	}
	if !slices.Equal(walked, keys) {
		t.Fatalf("walked %v, want %v", walked, keys)
	}
	for start := -1; start <= 301; start += 43 {
		var from []int
		for k := range got.from(start) {
			from = append(from, k)
		}
		at, _ := slices.BinarySearch(keys, start)
		if !slices.Equal(from, keys[at:]) {
			t.Fatalf("from %d: walked %v, want %v", start, from, keys[at:])
		}
		if _, ok := got.get(start); ok != (want[start] != nil) {
			t.Fatalf("key %d: found is %v", start, ok)
		}
	}
	for i, c := range got.chunks {
		if len(c.keys) == 0 || len(c.keys) > chunkMost || len(c.keys) != len(c.values) {
			t.Fatalf("chunk %d has %d keys and %d values", i, len(c.keys), len(c.values))
		}
	}
}

func checkDifferences(t *rapid.T, old, now table[int, *int], was, is map[int]*int) {
	type pair struct{ was, is *int }
	var got, want []pair
	for a, b := range differences(old, now) {
		got = append(got, pair{a, b})
	}
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if was[k] != is[k] {
			want = append(want, pair{was[k], is[k]})
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d differences, want %d", len(got), len(want))
	}
}
