"""The paper's Figure 3: gradient norms by layer and by depth."""
