package storage

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// producerEntries is one half of a producer table with the bounds that it keeps: the ordinary producers, or
// the idempotency keys. The table's lock guards it.
type producerEntries struct {
	byID   map[int64]producer
	order  []aged        // oldest first; an entry that was refreshed since has another one behind
	keep   time.Duration // an entry is forgotten this long after its last batch
	most   int           // entries; 0 sets no limit
	budget *KeyBudget    // shared with other tables; nil sets no limit
}

// aged is an entry of the table as it was at a time. It is stale when the entry's time is another.
type aged struct {
	id int64
	at int64 // Unix milliseconds
}

// put adds or replaces an entry and keeps the bounds: the oldest go first.
func (e *producerEntries) put(id int64, entry producer) {
	_, known := e.byID[id]
	e.byID[id] = entry
	e.order = append(e.order, aged{id, entry.at})
	if !known && e.budget != nil {
		used := e.budget.used.Add(1)
		for used > e.budget.most && len(e.byID) > 1 && e.dropOldest() {
			e.budget.evicted.Add(1)
			used = e.budget.used.Load()
		}
	}
	for e.most > 0 && len(e.byID) > e.most && e.dropOldest() {
	}
	if len(e.order) > 2*len(e.byID)+64 {
		e.order = slices.DeleteFunc(e.order, e.stale)
	}
}

func (e *producerEntries) stale(a aged) bool {
	entry, ok := e.byID[a.id]
	return !ok || entry.at != a.at
}

// dropOldest forgets the entry whose last batch is the oldest.
func (e *producerEntries) dropOldest() bool {
	for len(e.order) > 0 {
		oldest := e.order[0]
		e.order = e.order[1:]
		if !e.stale(oldest) {
			e.drop(oldest.id)
			return true
		}
	}
	return false
}

func (e *producerEntries) drop(id int64) {
	delete(e.byID, id)
	if e.budget != nil {
		e.budget.used.Add(-1)
	}
}

// expire forgets the entries that are out of their time.
func (e *producerEntries) expire(now time.Time) {
	before := now.Add(-e.keep).UnixMilli()
	for len(e.order) > 0 && (e.order[0].at <= before || e.stale(e.order[0])) {
		if !e.stale(e.order[0]) {
			e.drop(e.order[0].id)
		}
		e.order = e.order[1:]
	}
}

// fill puts many entries, those that are kept longest last.
func (e *producerEntries) fill(byID map[int64]producer) {
	ids := slices.SortedFunc(maps.Keys(byID), func(a, b int64) int {
		return cmp.Or(cmp.Compare(byID[a].at, byID[b].at), cmp.Compare(a, b))
	})
	for _, id := range ids {
		e.put(id, byID[id])
	}
}

func (e *producerEntries) clear() {
	if e.budget != nil {
		e.budget.used.Add(int64(-len(e.byID)))
	}
	clear(e.byID)
	e.order = nil
}
