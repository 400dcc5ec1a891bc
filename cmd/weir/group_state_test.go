package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// groupState is a group as the API describes it.
type groupState struct {
	Group   string
	State   string
	Epoch   int64
	Lag     *int64
	Members []struct {
		Member     string
		Epoch      int64
		Assignment []topicPartitions
		Leaving    []topicPartitions
		WaitingFor []groupWait `json:"waiting_for"`
	}
	Partitions []struct {
		Topic     string
		Partition int
		Member    string
		Committed *int64 `json:"committed_offset"`
		End       *int64 `json:"end_offset"`
		Lag       *int64
		Metadata  string
	}
}

// member finds one by name and counts its partitions.
func (d *groupState) member(name string) (partitions int, is bool) {
	for _, m := range d.Members {
		if m.Member == name {
			for _, t := range m.Assignment {
				partitions += len(t.Partitions)
			}
			return partitions, true
		}
	}
	return 0, false
}

// committed is the committed offset of a partition, or -1.
func (d *groupState) committed(topic string, partition int) int64 {
	for _, p := range d.Partitions {
		if p.Topic == topic && p.Partition == partition && p.Committed != nil {
			return *p.Committed
		}
	}
	return -1
}

func tryDescribe(base, group string) (groupState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var d groupState
	a, err := ask(ctx, http.MethodGet, base+"/v1/groups/"+url.PathEscape(group), "")
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", a.status, a.body)
	}
	if err == nil {
		err = json.Unmarshal(a.body, &d)
	}
	return d, err
}

// describeGroup waits for the coordinator, which loads the group after a start.
func describeGroup(t *testing.T, base, group string) groupState {
	t.Helper()
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		d, err := tryDescribe(base, group)
		if err == nil {
			return d
		}
		if last = err; !strings.Contains(err.Error(), "status 503") {
			break
		}
	}
	t.Fatalf("describe %s: %v", group, last)
	return groupState{}
}
