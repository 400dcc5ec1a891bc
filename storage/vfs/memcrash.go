package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Kill returns the file system as it is after kill -9 of the process: every write and every name is
// there, locks and open files are gone. What was not synced still is not: a later [Mem.Crash] of the
// copy may lose it.
func (m *Mem) Kill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clone()
}

// Crash returns the file system as it may be after a power cut. Synced content and names are there.
// For the rest chance decides, the same way for the same seed: for each change of a name whether it
// happened, for each page since its last sync which of its states reached the disk, or how much of one,
// and for a file whose size changed which size. All of the result is synced.
func (m *Mem) Crash(seed uint64) *Mem {
	m.mu.Lock()
	c := m.clone()
	m.mu.Unlock()

	dice := newDice(seed)
	for _, change := range c.names {
		if dice.happened() {
			change.apply()
		}
	}
	c.names, c.used = nil, 0
	c.settle(c.root, dice)
	return c
}

// dice decides. Each crash has its own bias, so that "nothing reached the disk" and "all but one page
// did" both come up.
type dice struct {
	*rand.Rand
	names, pages float64 // chance of a change to have happened
}

func newDice(seed uint64) *dice {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) //nolint:gosec // chance by seed is the point
	biases := []float64{0, 0.1, 0.5, 0.5, 0.9, 1}
	return &dice{r, biases[r.IntN(len(biases))], biases[r.IntN(len(biases))]}
}

func (d *dice) happened() bool { return d.Float64() < d.names }

// settle makes what is on disk the only state, from a directory down.
func (m *Mem) settle(dir *node, dice *dice) {
	dir.children = maps.Clone(dir.saved)
	for _, name := range slices.Sorted(maps.Keys(dir.saved)) {
		n := dir.saved[name]
		n.place = n.savedPlace
		if n.dir {
			m.settle(n, dice)
			continue
		}
		n.settle(dice)
		m.used += n.pagesBytes()
	}
}

// settle decides what the power cut left of a file.
func (c *content) settle(d *dice) {
	size := d.size(c)
	pages := make([]page, pagesOf(size))
	for number := range pages {
		pages[number] = d.page(c, int64(number))
	}
	if at := size % pageBytes; at != 0 && pages[len(pages)-1] != nil {
		last := new([pageBytes]byte)
		copy(last[:at], pages[len(pages)-1][:at])
		pages[len(pages)-1] = last
	}
	*c = content{size: size, pages: pages, savedSize: size, savedPages: slices.Clone(pages), low: size}
}

// size picks the old size, the new one, or one that the file may have had between.
func (d *dice) size(c *content) int64 {
	least, most := min(c.low, c.savedSize), max(c.size, c.savedSize)
	switch {
	case least == most:
		return most
	case d.Float64() < d.pages:
		return c.size
	case d.IntN(3) == 0:
		return least + d.Int64N(most-least+1)
	default:
		return c.savedSize
	}
}

// page picks a state of one page.
func (d *dice) page(c *content, number int64) page {
	var old page
	if number < int64(len(c.savedPages)) {
		old = c.savedPages[number]
	}
	states := append([]page{old}, c.dirty[number]...)
	if number*pageBytes >= c.low && old != nil {
		states = append(states, nil) // the file was shorter for a while, and its old end was freed
	}
	if len(states) == 1 {
		return old
	}
	if d.Float64() >= d.pages {
		return old
	}
	if d.IntN(4) != 0 {
		// Mostly the newest: a test that waits for two particular versions learns little.
		if d.IntN(4) != 0 && number < int64(len(c.pages)) && len(c.dirty[number]) > 0 {
			return states[len(c.dirty[number])]
		}
		return states[d.IntN(len(states))]
	}
	return torn(states[d.IntN(len(states))], states[d.IntN(len(states))], d.IntN(pageBytes))
}

// torn is the first bytes of one state and the rest of another.
func torn(first, rest page, at int) page {
	mix := new([pageBytes]byte)
	if first != nil {
		copy(mix[:at], first[:at])
	}
	if rest != nil {
		copy(mix[at:], rest[at:])
	}
	return mix
}

// clone copies the whole graph of nodes, live and saved, which may share nodes that the other has lost.
// The caller holds the mutex.
func (m *Mem) clone() *Mem {
	copies := map[*node]*node{}
	var dup func(n *node) *node
	at := func(p place) place { return place{dup(p.dir), p.name} }
	dup = func(n *node) *node {
		if n == nil {
			return nil
		}
		if c, ok := copies[n]; ok {
			return c
		}
		c := &node{dir: n.dir, mode: n.mode, content: n.content.clone()}
		copies[n] = c
		if n.dir {
			c.children, c.saved = make(map[string]*node, len(n.children)), make(map[string]*node, len(n.saved))
			for name, child := range n.children {
				c.children[name] = dup(child)
			}
			for name, child := range n.saved {
				c.saved[name] = dup(child)
			}
		}
		c.place, c.savedPlace = at(n.place), at(n.savedPlace)
		return c
	}
	c := NewMem()
	c.root, c.used, c.total = dup(m.root), m.used, m.total
	c.names = make([]nameChange, len(m.names))
	for i, change := range m.names {
		c.names[i] = nameChange{dup(change.node), at(change.from), at(change.to)}
	}
	return c
}

func (c *content) clone() content {
	d := *c
	d.pages, d.savedPages = slices.Clone(c.pages), slices.Clone(c.savedPages)
	d.dirty = make(map[int64][]page, len(c.dirty))
	for number, versions := range c.dirty {
		d.dirty[number] = slices.Clone(versions)
	}
	return d
}
