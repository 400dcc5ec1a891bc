package group

import (
	"maps"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Alter changes the group's settings; nil takes an override away.
func (g *Group) Alter(overrides map[string]*string, now time.Time) ([]Record, error) {
	if !g.exists {
		return nil, g.missing("group.Alter")
	}
	next := make(map[string]string, len(g.overrides)+len(overrides))
	maps.Copy(next, g.overrides)
	known := g.cfg.Settings.Values()
	for name, value := range overrides {
		_, exists := known[name]
		switch {
		case value != nil:
			next[name] = *value
		case exists:
			delete(next, name)
		default:
			next[name] = "" // to be refused with the others
		}
	}
	settings, err := topic.ParseGroupSettings(next, g.cfg.Settings)
	if err != nil {
		return nil, err
	}
	if maps.Equal(next, g.overrides) {
		return nil, nil
	}
	if len(next) == 0 {
		next = nil
	}
	g.enter(now)
	g.unbalanced = settings.Assignor != g.settings.Assignor
	g.overrides, g.settings, g.dirty = next, settings, true
	g.balance()
	g.remind()
	return g.records(), nil
}

// Delete forgets a group without members, and what it has committed. Its epoch stays in the log for the
// retention of offsets: made again, the group goes on from there.
func (g *Group) Delete(now time.Time) ([]Record, error) {
	switch {
	case !g.exists:
		return nil, g.missing("group.Delete")
	case len(g.byName) > 0:
		return nil, fault.Newf("group.Delete", fault.GroupNotEmpty, g.name, "group %q has members, which have to leave first: %d", g.name, len(g.byName))
	}
	g.enter(now)
	g.raise()
	g.buryTopics()
	g.forget()
	g.emptySince = millis(now)
	g.remind()
	return g.records(), nil
}

// expire forgets the group, epoch and all.
func (g *Group) expire() []Record {
	g.enter(g.now)
	g.buryTopics()
	g.bury(groupKey(g.name))
	g.forget()
	g.logged, g.dirty = false, false
	return g.records()
}

func (g *Group) buryTopics() {
	for _, t := range g.topics {
		t.gone = true
		for _, p := range t.parts {
			if p.committed != topic.NoOffset {
				g.bury(offsetKey(g.name, p.ref()))
			}
		}
		g.bury(topicKey(g.name, t.id))
	}
}

func (g *Group) missing(op string) error {
	return fault.Newf(op, fault.NoGroup, g.name, "group %q does not exist", g.name)
}
