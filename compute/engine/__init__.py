"""A real model in torch: the only part of the courseware that computes logits."""
