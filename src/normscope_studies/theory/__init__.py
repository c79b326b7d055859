"""The statements that Xiong et al. 2020 prints, and the same statements as their proofs support
them.

What exists in both modules has the same name, so that the two can be shown side by side:
`paper.is_bounded` and `corrected.is_bounded`.
"""
