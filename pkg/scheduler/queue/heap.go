// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

// itemHeap is a heap of items. Each item stores its index in the heap, so that it can be moved or
// removed.
type itemHeap struct {
	items []*Item
	less  func(a, b *Item) bool
}

func (h *itemHeap) Len() int           { return len(h.items) }
func (h *itemHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

func (h *itemHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

func (h *itemHeap) Push(x any) {
	item := x.(*Item)
	item.index = len(h.items)
	h.items = append(h.items, item)
}

func (h *itemHeap) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	return item
}
